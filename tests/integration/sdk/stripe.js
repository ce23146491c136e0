// Stripe's SDK as its manual says: host, port and protocol are the door, the token stands for the secret key.
const { resolve } = require('path');
const Stripe = require(resolve(process.env.SDKS, 'node_modules/stripe'));
const [action, id, reference] = process.argv.slice(2);
const door = new URL(process.env.DOOR);
const client = new (Stripe.default || Stripe)(process.env.TOKEN, { host: door.hostname, port: door.port, protocol: 'http' });
const run = {
  calculate: () => client.tax.calculations.create({
    currency: 'usd', line_items: [{ amount: 3998, reference: 'L1', tax_code: 'txcd_99999999' }], expand: ['line_items'],
    customer_details: { address: { line1: '100 Ravine Ln NE', city: 'Bainbridge Island', state: 'WA', postal_code: '98110-1234', country: 'US' }, address_source: 'shipping' },
  }),
  commit: () => client.tax.transactions.createFromCalculation({ calculation: id, reference }),
}[action];
run().then((answer) => console.log(JSON.stringify({ ok: answer })))
  .catch((error) => console.log(JSON.stringify({ error: { type: error.type, status: error.statusCode, message: error.message, code: error.code } })));
