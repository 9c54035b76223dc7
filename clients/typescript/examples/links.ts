// Creates, changes, lists and revokes a link. Environment: SHORTLINK_URL, the address of the internal server, and
// SHORTLINK_KEY, an API key with the scopes links:read and links:write.
import { Client, ProblemError } from 'ngx-shortlink';

const { SHORTLINK_URL = 'http://127.0.0.1:8081', SHORTLINK_KEY = '' } = process.env;
const client = new Client(SHORTLINK_URL, SHORTLINK_KEY);

const link = await client.createLink({ longUrl: 'https://www.example.com/spring', tags: ['typescript'] });
console.log(`created ${link.shortCode}`);
await client.changeLink(link.shortCode, { note: 'Spring' });

for await (const page of client.pages(client.listLinks, { tag: 'typescript', limit: 100 })) {
  for (const { shortCode, note } of page.links) console.log(`listed ${shortCode} ${note}`);
}
await client.revokeLink(link.shortCode);

try {
  await client.createLink({ longUrl: 'mailto:a@example.com', maxVisits: 0 });
} catch (error) {
  if (!(error instanceof ProblemError)) throw error;
  for (const { pointer, detail } of error.errors) console.log(`refused ${pointer} ${detail}`);
}
