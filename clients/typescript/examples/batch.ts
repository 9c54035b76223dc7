// Creates a link for each row of a large source, with constant memory, and prints one line for each. Repeated with the
// same key and rows within 24 hours, it creates nothing a second time. Arguments: the idempotency key, and the number
// of rows. Environment: SHORTLINK_URL and SHORTLINK_KEY.
import { Client, type NewLink } from 'ngx-shortlink';

const { SHORTLINK_URL = 'http://127.0.0.1:8081', SHORTLINK_KEY = '' } = process.env;
const [idempotencyKey = 'spring', count = '10000'] = process.argv.slice(2);
const client = new Client(SHORTLINK_URL, SHORTLINK_KEY);

// A cursor of a database or the lines of a file, in your program.
async function* recipients(): AsyncGenerator<NewLink> {
  for (let row = 0; row < Number(count); row += 1) {
    yield { longUrl: `https://www.example.com/spring?m=${row}`, externalId: `m-${row}` };
  }
}

for await (const result of client.createLinks(recipients(), { idempotencyKey })) {
  if (result.link) console.log(`${result.index} ${result.externalId} ${result.link.shortCode}`);
  else console.error(`${result.index} ${result.externalId} ${result.problem?.title}`);
}
