export { Client, type FollowOptions } from './client.js';
export type { ClientOptions } from './connection.js';
export { ConnectionFailed, ProblemError, ShortlinkError, WebhookError } from './errors.js';
export type * from './generated/schema.js';
export { type Event, type VerifyOptions, verifyWebhook } from './webhooks.js';
