// Verification of webhooks. The vector is that of the Standard Webhooks specification.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import { verifyWebhook, WebhookError } from 'ngx-shortlink';

const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const BODY = '{"test": 2432232314}';
const HEADERS = {
  'Webhook-Id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
  'webhook-timestamp': '1614265330',
  'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
};
const NOW = 1614265330;
const EVENT = { type: 'webhook.test', id: 'e', timestamp: '2030-06-01T12:00:00Z', data: {} };

function signed(body: string, secret = SECRET) {
  const mac = createHmac('sha256', Buffer.from(secret.slice(6), 'base64'))
    .update(`m.${NOW}.${body}`)
    .digest('base64');
  return { 'webhook-id': 'm', 'webhook-timestamp': String(NOW), 'webhook-signature': `v1,${mac}` };
}

test('the vector of the specification passes', async () => {
  const found = await verifyWebhook(BODY, HEADERS, SECRET, { now: NOW });
  assert.deepEqual(found, [{ test: 2432232314 }]);
  assert.deepEqual(await verifyWebhook(Buffer.from(BODY), new Headers(HEADERS), [SECRET], { now: NOW }), found);
});

test('a batch is a list of events', async () => {
  const body = JSON.stringify({ type: 'batch', id: 'b', data: [EVENT, EVENT] });
  assert.deepEqual(await verifyWebhook(body, signed(body), SECRET, { now: NOW }), [EVENT, EVENT]);
});

test('another body is refused', async () => {
  for (const body of [`${BODY} `, '', BODY.replace('2', '3')]) {
    await assert.rejects(verifyWebhook(body, HEADERS, SECRET, { now: NOW }), WebhookError);
  }
});

test('other headers are refused', async () => {
  for (const [name, value] of [
    ['webhook-timestamp', '1614265331'],
    ['Webhook-Id', 'msg_other'],
    ['webhook-signature', ''],
    ['webhook-signature', HEADERS['webhook-signature'].replace('v1', 'v1a')],
    ['webhook-signature', 'v1,not base64 v1,é'],
    ['webhook-timestamp', 'soon'],
    ['webhook-timestamp', '-1'],
    ['webhook-id', undefined],
  ] as const) {
    const { [name as 'Webhook-Id']: _, ...others } = HEADERS;
    const headers = name === 'webhook-id' ? { ...HEADERS, 'Webhook-Id': undefined } : { ...others, [name]: value };
    await assert.rejects(verifyWebhook(BODY, headers, SECRET, { now: NOW }), WebhookError, `${name}: ${value}`);
  }
});

test('the time has a tolerance in both directions', async () => {
  const body = JSON.stringify(EVENT);
  for (const difference of [-300, 300]) {
    assert.deepEqual(await verifyWebhook(body, signed(body), SECRET, { now: NOW + difference }), [EVENT]);
  }
  for (const difference of [-301, 301]) {
    await assert.rejects(verifyWebhook(body, signed(body), SECRET, { now: NOW + difference }), /differs/);
  }
});

test('either secret passes while it is rotated', async () => {
  const body = JSON.stringify(EVENT);
  const other = `whsec_${Buffer.from('another secret').toString('base64')}`;
  const both = `${signed(body, other)['webhook-signature']} ${signed(body)['webhook-signature']}`;
  const headers = { ...signed(body), 'webhook-signature': both };
  assert.deepEqual(await verifyWebhook(body, headers, SECRET, { now: NOW }), [EVENT]);
  assert.deepEqual(await verifyWebhook(body, signed(body), [other, SECRET], { now: NOW }), [EVENT]);
  await assert.rejects(verifyWebhook(body, signed(body), other, { now: NOW }), WebhookError);
});

test('a wrong configuration is no forgery', async () => {
  for (const secrets of [[], 'whsec_', 'whsec_?']) {
    await assert.rejects(verifyWebhook(BODY, HEADERS, secrets, { now: NOW }), TypeError);
  }
});

test('a parsed body is refused', async () => {
  await assert.rejects(verifyWebhook({ test: 1 } as unknown as string, HEADERS, SECRET, { now: NOW }), TypeError);
});
