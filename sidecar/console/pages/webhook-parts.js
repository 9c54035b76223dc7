// The common parts of the pages of webhooks: their fields.

import { has, t } from '../i18n.js';

const EVENTS = [
  'link.clicked', 'link.expired', 'campaign.created', 'campaign.changed', 'campaign.paused', 'campaign.resumed',
  'campaign.revoked', 'upload.finished', 'domain.suspected_blocked',
];

const CLASSES = ['human', 'preview', 'scanner', 'bot', 'unknown'];

/** The filters, which are null if they are empty. */
const FILTERS = ['campaignIds', 'tags', 'classes'];

/** A type of events in words. */
export const eventInWords = (event) => (has(`event.${event}`) ? `${event} – ${t(`event.${event}`)}` : event);

/** The fields of every webhook. A function, since the texts depend on the language. */
export const FIELDS = () => [
  { name: 'name', kind: 'text', required: true, hint: true },
  { name: 'url', kind: 'url', required: true, placeholder: 'https://', hint: true },
  { name: 'events', kind: 'several', initial: EVENTS, choices: EVENTS.map((event) => [event, eventInWords(event)]) },
  {
    name: 'clicks', kind: 'choice', initial: 'first',
    choices: ['first', 'each'].map((clicks) => [clicks, t(`clicks.are.${clicks}`)]),
  },
];

/** The fields that narrow and bundle events. */
export const MORE = () => [
  { name: 'campaignIds', kind: 'tags', hint: true },
  { name: 'tags', kind: 'tags', label: t('webhook.tags') },
  { name: 'classes', kind: 'several', choices: CLASSES.map((name) => [name, t(`class.${name}`)]) },
  { name: 'maxBatch', kind: 'number', initial: 1, hint: true },
];

/** The members of a request. */
export function members(given) {
  for (const name of FILTERS) {
    if (given[name]?.length === 0) given[name] = null;
  }
  return given;
}
