// A quote from Spillway for Node 18 or later, without a package. Environment: SPILLWAY_URL, SPILLWAY_TOKEN_FILE, and
// SPILLWAY_SPOOL, a file such as /run/spillway/spool/web.jsonl. null: the shop's last resort is to be used.
const fs = require('node:fs');

class Rejected extends Error {} // the request is wrong (an address, a code): ask the customer, charge nothing

// caller:
async function quote(request) {
  const spool = (line) => fs.appendFileSync(process.env.SPILLWAY_SPOOL, JSON.stringify(line) + '\n');
  try {
    const token = fs.readFileSync(process.env.SPILLWAY_TOKEN_FILE, 'utf8').trim();
    const answer = await fetch(process.env.SPILLWAY_URL + '/spillway/v1/quote', { method: 'POST',
      headers: { Authorization: 'Bearer ' + token }, body: JSON.stringify(request), signal: AbortSignal.timeout(2500) });
    const body = await answer.json();
    if (answer.status === 422) throw new Rejected(JSON.stringify(body.provider_error));
    if (answer.status !== 200) throw new Error(answer.status + ' ' + (body.reason || body.error));
    if (body.fallback?.handback) spool(body.fallback.handback); // no ledger had room for the flag: it is ours to keep
    return body;
  } catch (error) {
    if (error instanceof Rejected) throw error;
    return spool({ unquoted: request, at: new Date().toISOString(), why: String(error) }), null; } }
// :caller

module.exports = { quote, Rejected };

if (require.main === module) (async () => { // a request a line
  for (const line of fs.readFileSync(0, 'utf8').trim().split('\n'))
    try {
      console.log(JSON.stringify(await quote(JSON.parse(line))) ?? 'null');
    } catch (error) {
      console.log('rejected ' + error.message);
    }
})();
