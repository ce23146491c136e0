// TaxJar's SDK as its manual says: apiUrl is the door, the token stands for the API key.
const { resolve } = require('path');
const Taxjar = require(resolve(process.env.SDKS, 'node_modules/taxjar'));
const [action, id, quote] = process.argv.slice(2);
const client = new (Taxjar.default || Taxjar)({
  apiKey: process.env.TOKEN, apiUrl: process.env.DOOR, headers: quote ? { 'Spillway-Quote': quote } : {},
});
const to = { to_country: 'US', to_zip: '98110-1234', to_state: 'WA', to_city: 'Bainbridge Island', to_street: '100 Ravine Ln NE' };
const from = { from_country: 'US', from_zip: '75201', from_state: 'TX', from_city: 'Dallas', from_street: '1500 Marilla St' };
const run = {
  calculate: () => client.taxForOrder({ ...from, ...to, shipping: 0, line_items: [{ id: '1', quantity: 1, unit_price: 39.98 }] }),
  commit: () => client.createOrder({
    ...from, ...to, transaction_id: id, transaction_date: '2025-11-28', amount: 39.98, shipping: 0, sales_tax: 3.68,
    line_items: [{ id: '1', quantity: 1, unit_price: 39.98, sales_tax: 3.68 }] }),
}[action];
run().then((answer) => console.log(JSON.stringify({ ok: answer })))
  .catch((error) => console.log(JSON.stringify({ error: { status: error.status, detail: error.detail, error: error.error, name: error.name } })));
