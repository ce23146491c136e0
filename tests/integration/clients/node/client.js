// The control API from Node: @grpc/grpc-js with the schema read at run time.
//   node client.js PROTO_DIRECTORY unix:SOCKET                  prints one JSON object: what it saw
//   node client.js PROTO_DIRECTORY HOST:PORT CA CERT KEY        the same by mutual TLS
'use strict';
const fs = require('fs');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [protos, address, ...files] = process.argv.slice(2);
const definition = loader.loadSync(['spillway/v1/control.proto', 'grpc/health/v1/health.proto'],
  {includeDirs: [protos], keepCase: true, longs: Number, enums: String});
const root = grpc.loadPackageDefinition(definition);
const v1 = root.spillway.v1;
const [ca, cert, key] = files.map((file) => fs.readFileSync(file));
const credentials = ca ? grpc.credentials.createSsl(ca, key, cert) : grpc.credentials.createInsecure();
const stub = (service) => new service(address, credentials);
const ask = (client, method, request) => new Promise((done, fail) =>
  client[method](request, (error, reply) => error ? fail(error) : done(reply)));
const all = (stream) => new Promise((done, fail) => {
  const got = [];
  stream.on('data', (one) => got.push(one)).on('end', () => done(got)).on('error', fail);
});

async function main() {
  const seen = {};
  seen.health = (await ask(stub(root.grpc.health.v1.Health), 'Check', {service: ''})).status;
  const watch = stub(v1.Changes).Watch({});
  const changed = new Promise((done, fail) => {
    watch.on('data', (reply) => {
      if (reply.snapshot)
        ask(stub(v1.Limits), 'Set', {account: 'main', rate: {text: '150/s'}, burst: 300}).then((reply) => {
          seen.set = reply.limit.rate.text;
          seen.version = reply.limit.version;
        }).catch(fail);
      for (const change of reply.changes || [])
        if (change.kind === 'limit')
          done(change);
    }).on('error', (error) => error.code === grpc.status.CANCELLED || fail(error));
  });
  const change = await changed;
  seen.watched = [change.after, change.account_version];
  watch.cancel();
  seen.refused = await ask(stub(v1.Limits), 'Set', {account: 'main', rate: {text: 'no rate'}})
    .then(() => 'no', (error) => [error.code, error.metadata.get('spillway-field')[0]]);
  seen.rates = await new Promise((done, fail) => {
    const replace = stub(v1.Rates).Replace((error, reply) => error ? fail(error) : done(reply.rows));
    replace.write({header: {source: 'node-test', as_of: new Date().toISOString().slice(0, 10)}});
    replace.write({rows: {rows: [{state: 'WA', zip5: 98110, combined_ppb: 92000000}]}});
    replace.write({end: {rows: 1}});
    replace.end();
  });
  seen.flags = (await all(stub(v1.Flags).Export({}))).length;
  console.log(JSON.stringify(seen));
  process.exit(0);
}

main().catch((error) => { console.error(error); process.exit(1); });
