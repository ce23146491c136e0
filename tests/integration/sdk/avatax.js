// AvaTax's SDK as its manual says: environment is the door, the token stands for the password.
const { resolve } = require('path');
const Avatax = require(resolve(process.env.SDKS, 'node_modules/avatax'));
const [action, id] = process.argv.slice(2);
const client = new (Avatax.default || Avatax)({
  appName: 'shop', appVersion: '1', machineName: 'test', environment: process.env.DOOR,
}).withSecurity({ username: 'spillway', password: process.env.TOKEN });
const address = { line1: '100 Ravine Ln NE', city: 'Bainbridge Island', region: 'WA', postalCode: '98110-1234', country: 'US' };
const from = { line1: '1500 Marilla St', city: 'Dallas', region: 'TX', postalCode: '75201', country: 'US' };
const model = (type, code) => ({
  type, code, companyCode: 'ACME', date: new Date().toISOString().slice(0, 10), customerCode: 'c_7', currencyCode: 'USD',
  addresses: { shipFrom: from, shipTo: address }, lines: [{ number: '1', quantity: 1, amount: 39.98, taxCode: 'P0000000' }],
});
const run = {
  calculate: () => client.createTransaction({ model: model('SalesOrder', id) }),
  invoice: () => client.createTransaction({ model: model('SalesInvoice', id) }),
  commit: () => client.commitTransaction({ companyCode: 'ACME', transactionCode: id, model: { commit: true } }),
}[action];
run().then((answer) => console.log(JSON.stringify({ ok: answer })))
  .catch((error) => console.log(JSON.stringify({ error: { code: error.code, message: error.message, name: error.name } })));
