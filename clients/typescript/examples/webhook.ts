// An endpoint of a webhook. Environment: PORT, and SECRETS, the secret of the webhook; while it is rotated, both,
// separated by a space.
import { createServer } from 'node:http';
import { verifyWebhook, WebhookError } from 'ngx-shortlink';

const { PORT = '8090', SECRETS = '' } = process.env;
const seen = new Set<string>();

createServer(async (request, response) => {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part);
  try {
    for (const event of await verifyWebhook(Buffer.concat(parts), request.headers, SECRETS.split(' '))) {
      // Deliveries are at least once.
      if (!seen.has(event.id)) console.log(`event ${event.type} ${event.id}`);
      seen.add(event.id);
    }
    response.writeHead(204).end();
  } catch (error) {
    if (!(error instanceof WebhookError)) throw error;
    response.writeHead(400).end(error.message);
  }
}).listen(Number(PORT), '127.0.0.1');
