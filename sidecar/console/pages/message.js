// Replaces the URLs of a message by short links, and shows the segments that this saves.

import { ask, Failure, get, part } from '../api.js';
import { copy, h, say } from '../dom.js';
import { count } from '../format.js';
import { form } from '../form.js';
import { t } from '../i18n.js';
import { fact, sheet } from '../parts.js';

/** The campaigns that the form offers. */
const OFFERED = 100;

/** The recipients that the saving is shown for at first. */
const RECIPIENTS = 1000;

/** The page. */
export async function show({ heading, at, may }) {
  const title = t('message');
  if (!may('links:write')) {
    return { title, parts: [heading(title),
      h('div', { class: 'notice warn' }, t('error.scope', { scope: 'links:write' }))] };
  }
  const listed = may('campaigns:read') ? await part(() => get(`/v1/campaigns?limit=${OFFERED}`)) : null;
  const campaigns = listed?.campaigns ?? [];
  const values = variables();
  const place = h('div', {});
  const made = form({
    fields: [
      { name: 'text', kind: 'long', required: true, hint: true, label: t('message.text') },
      campaigns.length > 0 && { name: 'campaignId', kind: 'choice', hint: true,
        choices: [['', t('message.no-campaign')], ...campaigns.map(({ id, name }) => [id, name])] },
    ].filter(Boolean),
    more: [{ name: 'tags', kind: 'tags', hint: true }, { name: 'domain', kind: 'text', hint: true },
      { name: 'externalId', kind: 'text' }],
    send: t('message.make'),
    changed: (inputs) => values.of(inputs.get('text').value),
    call: async ({ campaignId, ...members }) => {
      place.replaceChildren();
      // A choice reads digits as a number; ids are texts.
      const row = { ...members, ...(campaignId && { campaignId: String(campaignId) }), ...values.members() };
      const { data: [result] } = await ask('POST', '/v1/messages', [row]);
      if (result.problem) throw new Failure(result.status, result.problem);
      place.replaceChildren(short(result.message, { at, may }));
      place.querySelector('h2').focus();
      say(t('message.made'));
    },
  });
  made.querySelector('[name=text]').parentElement.after(values.place);
  return { title, parts: [heading(title), h('div', { class: 'sheet narrow' }, made), place] };
}

/** The fields of the variables in a text. */
function variables() {
  const kept = new Map();
  const place = h('div', { class: 'fields', 'data-variables': '' });
  let names = [];
  const field = (name) => {
    const input = kept.get(name) ?? h('input', { id: `v-${name}`, type: 'text', autocomplete: 'off' });
    kept.set(name, input);
    return h('div', {}, h('label', { for: input.id }, t('message.value', { name })), input);
  };
  return {
    place,
    of: (text) => {
      const found = [...new Set([...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name))];
      // A field that is replaced while it is filled would lose the cursor.
      if (found.join() === names.join()) return;
      names = found;
      place.replaceChildren(...names.map(field));
    },
    members: () => {
      const given = names.map((name) => [name, kept.get(name).value]).filter(([, value]) => value !== '');
      return given.length > 0 ? { parameters: Object.fromEntries(given) } : {};
    },
  };
}

/** The message with short links. */
function short({ text, codes, before, after }, { at, may }) {
  const size = ({ segments, encoding, length }) =>
    t('message.size', { segments: count(segments), encoding, length: count(length) });
  const saved = h('p', { role: 'status', 'data-saved': '' });
  const recipients = h('input', { id: 'recipients', type: 'number', min: '1', step: '1', value: RECIPIENTS,
    input: () => tell() });
  const tell = () => {
    const number = Number(recipients.value) || 0;
    const fewer = before.segments - after.segments;
    saved.textContent = t(fewer < 0 ? 'message.more' : 'message.fewer', {
      before: count(before.segments * number), after: count(after.segments * number),
      fewer: count(Math.abs(fewer) * number),
    });
  };
  tell();
  const button = h('button', { type: 'button', class: 'main', 'data-copy': text, click: async () => {
    const told = (await copy(text)) ? t('copied') : t('copy.failed');
    button.textContent = told;
    say(told);
    setTimeout(() => { button.textContent = t('copy'); }, 2000);
  } }, t('copy'));
  const made = sheet(t('message.made'),
    h('p', { class: 'said', 'data-text': '' }, text),
    h('div', { class: 'row' }, button),
    h('dl', { class: 'facts' },
      fact(t('message.before'), size(before)),
      fact(t('message.after'), size(after)),
      codes.length > 0 && fact(t('message.links'), codes.map((code) => [
        may('links:read') ? h('a', { class: 'code', href: at(`/links/${code}`) }, code) : h('span', { class: 'code' }, code),
        ' ',
      ]).flat())),
    h('div', { class: 'fields' },
      h('div', {}, h('label', { for: 'recipients' }, t('message.recipients')), recipients), saved));
  made.querySelector('h2').setAttribute('tabindex', '-1');
  return made;
}
