// The meaning of a file's columns: the member of a link that each holds.

import { isWeb } from '../dom.js';
import { has, t } from '../i18n.js';

/** Members of any link, with their other names in files. */
const MEMBERS = {
  externalId: ['id', 'ref', 'reference', 'externalid', '编号', '外部编号'],
  tags: ['tag', 'tags', '标签'],
  note: ['note', 'comment', '备注'],
  customSlug: ['slug', 'code', 'keyword', 'shortcode', '短码', '自定义短码'],
  validSince: ['since', 'from', 'starts', '生效时间'],
  validUntil: ['until', 'expires', 'expiry', 'ends', '失效时间'],
  maxVisits: ['visits', '最多访问次数'],
  domain: ['shortdomain', '短域名'],
};

/** Members of links that have a target of their own. */
const OWN = {
  longUrl: ['url', 'target', 'link', 'longurl', 'address', 'destination', '目标网址', '网址', '链接'],
  redirectStatus: ['status'],
  clickId: ['clickid'],
  rules: ['rule', '规则'],
  variants: ['variant', 'abtest', '变体'],
  expiredTarget: ['expiredurl', '结束后的目标网址', '结束之后'],
  pausedTarget: ['pausedurl', '暂停期间的目标网址', '暂停期间'],
  notYetTarget: ['notyeturl', '开始前的目标网址', '开始之前'],
  preview: ['预览'],
};

/** A name without its case and the characters that often stand between its words. */
export const plain = (name) => name.trim().toLowerCase().replace(/[\s_.-]+/g, '');

/** The members of the links of a campaign, or of no campaign. */
export function members(campaign) {
  const parameters = (campaign?.parameters ?? []).map((name) => [`parameters.${name}`, [plain(name)]]);
  return new Map([...parameters, ...Object.entries(campaign ? {} : OWN), ...Object.entries(MEMBERS)]);
}

/** The label of a member. */
export function called(member) {
  const [outer, inner] = member.split('.');
  if (outer === 'parameters') return t('upload.parameter', { name: inner });
  return has(`field.${member}`) ? t(`field.${member}`) : member;
}

/**
 * The guessed member of each column, by its name; null for those that are left out. The target is also recognised by the
 * first rows: a column of URLs, whatever its name.
 */
export function guess(names, campaign, rows) {
  const known = members(campaign);
  const left = new Set(known.keys());
  const take = (found) => {
    if (!found || !left.delete(found)) return null;
    return found;
  };
  // Exact names first, so that a similar name does not take their place.
  const exact = names.map((name) => take(name.trim()));
  const found = names.map((name, place) => exact[place]
    ?? take([...known].find(([member, others]) => left.has(member)
      && (plain(member) === plain(name) || others.includes(plain(name))))?.[0]));
  const ofUrls = names.findIndex((_, place) => !found[place] && rows.length > 0 && rows.every((row) => isWeb(row[place] ?? '')));
  if (ofUrls >= 0 && left.has('longUrl')) found[ofUrls] = take('longUrl');
  return found;
}

/** Required members that no column has. */
export function missing(chosen, campaign) {
  const needed = campaign ? campaign.parameters.map((name) => `parameters.${name}`) : ['longUrl'];
  return needed.filter((member) => !chosen.includes(member));
}
