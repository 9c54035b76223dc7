// Prints visits while they are stored, and continues after a restart where it was. Arguments: the file of the position,
// and optionally the number of visits after which it ends. Environment: SHORTLINK_URL and SHORTLINK_KEY, an API key
// with the scope stats:read.
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { Client } from 'ngx-shortlink';

const { SHORTLINK_URL = 'http://127.0.0.1:8081', SHORTLINK_KEY = '' } = process.env;
const [file = 'position', most = 'Infinity'] = process.argv.slice(2);
const client = new Client(SHORTLINK_URL, SHORTLINK_KEY);

let seen = 0;
const after = existsSync(file) ? readFileSync(file, 'utf8') : '';
for await (const page of client.followVisits(after)) {
  for (const visit of page.visits) console.log(`visit ${visit.id} ${visit.shortCode} ${visit.class}`);
  // The position is stored behind the results, and as a whole: after a crash, a page can be repeated.
  writeFileSync(`${file}.new`, page.nextCursor);
  renameSync(`${file}.new`, file);
  seen += page.visits.length;
  if (seen >= Number(most)) break;
}
