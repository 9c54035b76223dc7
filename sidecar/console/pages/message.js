// Replaces the URLs of a message by short links, and shows the segments that this saves.

import { Failure, ask, get, lacking, part } from '../api.js';
import { h, say } from '../dom.js';
import { form } from '../form.js';
import { t } from '../i18n.js';
import { copyButton, fact, sheet } from '../parts.js';
import { activeDomains, domainField } from '../short-domains.js';
import { columnOf, recipients, sendAll } from '../recipients.js';

/** The campaigns that the form offers. */
const OFFERED = 100;

/** The recipients that the saving is shown for at first. */
const RECIPIENTS = 1000;

/** The page. */
export async function show({ heading, at, may, left, keyId }) {
  const title = t('message');
  if (!may('links:write')) {
    return { title, parts: [heading(title), lacking('links:write')] };
  }
  const [listed, domains] = await Promise.all([
    may('campaigns:read') ? part(() => get(`/v1/campaigns?limit=${OFFERED}`)) : null, activeDomains(may),
  ]);
  const campaigns = listed?.campaigns?.filter(({ state }) => state !== 'revoked') ?? [];
  const id = new URLSearchParams(location.search).get('campaignId');
  const values = variables();
  const ofFile = recipients((names, rows) => {
    values.from(names);
    made.querySelector('.main').textContent = names ? t('message.make.rows', { rows }) : t('message.make');
  });
  const place = h('div', {});
  const made = form({
    fields: [
      { name: 'text', kind: 'long', required: true, hint: true, label: t('message.text') },
      campaigns.length > 0 && { name: 'campaignId', kind: 'choice', hint: 'hint.campaignId',
        choices: [['', t('message.no-campaign')], ...campaigns.map(({ id, name }) => [id, name])] },
    ].filter(Boolean),
    more: [{ name: 'tags', kind: 'tags', hint: true }, domainField(domains, { keyId: keyId() }),
      { name: 'externalId', kind: 'text' }],
    send: t('message.make'),
    changed: (inputs) => values.of(inputs.get('text').value),
    call: async ({ campaignId, ...members }) => {
      place.replaceChildren();
      // A choice reads digits as a number; ids are texts.
      const common = { ...members, ...(campaignId && { campaignId: String(campaignId) }) };
      const file = ofFile.chosen();
      if (file) {
        await sendAll({ file, place, left, columns: values.columns(file), row: (cells) => ({
          ...common, ...values.members(cells), ...(file.reference !== null && { externalId: cells[file.reference] }),
        }) });
        return;
      }
      const row = { ...common, ...values.members() };
      const { data: [result] } = await ask('POST', '/v1/messages', [row]);
      if (result.problem) throw new Failure(result.status, result.problem);
      place.replaceChildren(short(result.message, { at, may }));
      place.querySelector('h2').focus();
      say(t('message.made'));
    },
  });
  const text = made.querySelector('[name=text]');
  text.parentElement.after(ofFile.place, values.place);
  const choice = made.querySelector('[name=campaignId]');
  choice?.addEventListener('change', () => {
    const target = campaigns.find((it) => it.id === choice.value)?.longUrl;
    if (!target || text.value.includes(target)) return;
    // The target of the campaign that was chosen before makes way for it.
    const other = campaigns.find(({ longUrl }) => text.value.includes(longUrl))?.longUrl;
    text.value = other ? text.value.replace(other, target) : [text.value.trimEnd(), target].filter(Boolean).join(' ');
    text.dispatchEvent(new Event('input', { bubbles: true }));
  });
  if (choice && id) {
    choice.value = id;
    choice.dispatchEvent(new Event('change'));
  }
  return { title, parts: [heading(title), h('div', { class: 'sheet narrow' }, made), place] };
}

/** The fields of the variables in a text: of their values, or with a file of the columns that have them. */
function variables() {
  const kept = new Map();
  const place = h('div', { class: 'fields', 'data-variables': '' });
  let names = [];
  let columns = null;
  const made = (name) => (columns
    ? h('select', { id: `v-${name}` }, columns.map((column, at) =>
      h('option', { value: at, selected: at === columnOf(name, columns) }, column || String(at + 1))))
    : h('input', { id: `v-${name}`, type: 'text', autocomplete: 'off' }));
  const field = (name) => {
    const input = kept.get(name) ?? made(name);
    kept.set(name, input);
    return h('div', {}, h('label', { for: input.id }, t(columns ? 'message.column' : 'message.value', { name })), input);
  };
  const draw = () => place.replaceChildren(...names.map(field));
  return {
    place,
    of: (text) => {
      const found = [...new Set([...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name))];
      // A field that is replaced while it is filled would lose the cursor.
      if (found.join() === names.join()) return;
      names = found;
      draw();
    },
    /** Takes values from the columns of a file with these names; null for none. */
    from: (ofFile) => {
      columns = ofFile;
      kept.clear();
      draw();
    },
    /** The parameters of a message; `cells` are the values of its row. */
    members: (cells) => {
      const given = names.map((name) => [name, cells ? cells[kept.get(name).value] ?? '' : kept.get(name).value])
        .filter(([, value]) => value !== '');
      return given.length > 0 ? { parameters: Object.fromEntries(given) } : {};
    },
    /** The names of a file's columns by member. */
    columns: ({ names: all, reference }) => new Map([
      ...names.map((name) => [`parameters.${name}`, all[kept.get(name).value]]),
      ...(reference === null ? [] : [['externalId', all[reference]]]),
    ]),
  };
}

/** The message with short links. */
function short({ text, codes, before, after }, { at, may }) {
  const saved = h('p', { role: 'status', 'data-saved': '' });
  const recipients = h('input', { id: 'recipients', type: 'number', min: '1', step: '1', value: RECIPIENTS,
    input: () => tell() });
  const tell = () => {
    const number = Number(recipients.value) || 0;
    const fewer = before.segments - after.segments;
    saved.textContent = t(fewer < 0 ? 'message.more' : 'message.fewer', {
      before: before.segments * number, after: after.segments * number, fewer: Math.abs(fewer) * number,
    });
  };
  tell();
  const made = sheet(t('message.made'),
    h('p', { class: 'said', 'data-text': '' }, text),
    h('div', { class: 'row' }, copyButton(text, { class: 'main' })),
    h('dl', { class: 'facts' },
      fact(t('message.before'), t('message.size', before)),
      fact(t('message.after'), t('message.size', after)),
      codes.length > 0 && fact(t('message.links'), codes.map((code) => [
        may('links:read') ? h('a', { class: 'code', href: at(`/links/${code}`) }, code) : h('span', { class: 'code' }, code),
        ' ',
      ]).flat())),
    h('div', { class: 'fields' },
      h('div', {}, h('label', { for: 'recipients' }, t('message.recipients')), recipients), saved));
  made.querySelector('h2').setAttribute('tabindex', '-1');
  return made;
}
