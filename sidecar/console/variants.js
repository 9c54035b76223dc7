// A/B tests: the part of a form with variants, their results, and the end of a test with a winner.

import { ask, get, notice, part } from './api.js';
import { confirmed, h, say } from './dom.js';
import { count, percent } from './format.js';
import { t } from './i18n.js';
import { sheet } from './parts.js';
import { fieldOf, listed } from './rows.js';

/** Reports whether a rule is a share of all visitors. */
const isShare = ({ percent: share, variant, longUrl, ...others }) =>
  share !== undefined && Object.keys(others).length === 0;

/**
 * The members of a form: variants are stored as rules. Shares that no variants make, such as those that leave visitors to the
 * default target, stay rules.
 */
export function withVariants(link) {
  const { rules = [] } = link;
  const shares = rules.filter(isShare);
  const others = rules.slice(0, rules.length - shares.length);
  const sum = shares.reduce((all, rule) => all + rule.percent, 0);
  const names = new Set(shares.map(({ variant }) => variant));
  const isTest = shares.length > 0 && Math.abs(sum - 100) < 0.001 && !names.has(undefined)
    && names.size === shares.length && others.every((rule) => rule.percent === undefined);
  if (!isTest) return { ...link, variants: [] };
  const variants = shares.map(({ variant: name, percent: weight, longUrl }) => ({ name, weight, longUrl }));
  return { ...link, rules: others, variants };
}

/** The members of a change: rules replace all, so that variants that are to stay go with them. */
export const together = (members, { variants }) =>
  (members.rules !== undefined && members.variants === undefined && variants.length > 0
    ? { ...members, variants } : members);

/** The part of a form with variants; its texts depend on the language. */
export const testOf = () => [t('variants'), [{ name: 'variants', kind: 'rules', make: editor }]];

const editor = listed({
  texts: 'variants', one: 'variant', acts: ['remove'], blank: { name: '', weight: 1, longUrl: '' },
  row: ({ name, weight, longUrl }, id) => {
    const field = (...given) => fieldOf('variants', id, ...given);
    const fields = {
      name: field('name', { 'aria-required': 'true' }, name),
      weight: field('weight', { type: 'number', min: '0', step: 'any', 'aria-required': 'true' }, weight),
      longUrl: field('longUrl', { inputmode: 'url', placeholder: 'https://', 'aria-required': 'true' }, longUrl),
    };
    const text = (member) => fields[member].made.value.trim();
    return {
      shown: [h('div', { class: 'pair' }, fields.name.shown, fields.weight.shown), fields.longUrl.shown],
      read: () => ({
        name: text('name'), weight: text('weight') === '' ? null : Number(text('weight')), longUrl: text('longUrl'),
      }),
    };
  },
});

/**
 * A section with the results of a link or a campaign, and the end of its test; null where there are none, or the key may not
 * see them. `path` is that of the API; `headers` go with the end.
 */
export async function results({ subject, path, canEnd, may, again, headers = {} }) {
  if (!may('stats:read')) return null;
  const current = (subject.rules ?? []).filter((rule) => isShare(rule) && rule.variant).map(({ variant }) => variant);
  const answer = await part(() => get(`${path}/variants`));
  if (answer.failure) return sheet(t('variants'), notice(answer.failure));
  const { variants, leader, decided } = answer;
  if (current.length === 0 && variants.length === 0) return null;
  const known = new Map(variants.map((it) => [it.variant, it]));
  const names = [...new Set([...current, ...known.keys()])];
  const isRunning = canEnd && current.length > 0;
  const head = ['name', 'clicks', 'conversions', 'rate', 'interval'];
  const row = (name) => {
    const it = known.get(name);
    const number = (text) => h('td', { class: 'number' }, it ? text(it) : '–');
    return h('tr', { 'data-variant': name },
      h('th', { scope: 'row' }, nameOf(name)),
      number(({ clicks, share }) => `${count(clicks)} (${percent(share)})`),
      number(({ conversions }) => count(conversions)),
      number(({ conversionRate }) => percent(conversionRate)),
      number(({ interval }) => `${percent(interval.low)} – ${percent(interval.high)}`));
  };
  return h('section', { class: 'sheet', 'data-variants': '', 'aria-label': t('variants.results') },
    h('h2', {}, t('variants.results')),
    h('p', { class: 'hint' }, t('variants.results.hint')),
    leader !== null && h('p', { class: decided ? 'notice good' : 'notice', 'data-leader': leader },
      t(decided ? 'variants.decided' : 'variants.leads', { name: nameOf(leader) })),
    h('div', { class: 'scrolled', tabindex: '0', role: 'region', 'aria-label': t('variants.results') },
      h('table', {},
        h('thead', {}, h('tr', {}, head.map((name, place) =>
          h('th', { scope: 'col', class: place > 0 && 'number' }, t(`variants.${name}`))))),
        h('tbody', {}, names.map(row)))),
    isRunning && h('div', { class: 'row' }, [...current, ''].map((name) =>
      ending({ name, path, headers, again }))));
}

/** A variant; the one without a name is the default target. */
const nameOf = (name) => name || t('variants.default');

/** The button that ends a test with a variant. */
function ending({ name, path, headers, again }) {
  const end = async () => {
    const agreed = await confirmed({
      title: t('variants.end.title', { name: nameOf(name) }), text: t('variants.end.text'),
      yes: t('variants.end.yes'), no: t('cancel'),
    });
    if (!agreed) return;
    try {
      await ask('POST', `${path}/winner`, { variant: name }, headers);
      await again();
      say(t('variants.ended', { name: nameOf(name) }));
    } catch (failure) {
      button.closest('.row').after(notice(failure, again));
    }
  };
  const button = h('button', { type: 'button', 'data-winner': name, click: end },
    t('variants.end', { name: nameOf(name) }));
  return button;
}
