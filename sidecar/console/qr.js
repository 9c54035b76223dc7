// The dialog with a link's QR code: its looks, and its files.

import { file, notice, part } from './api.js';
import { save } from './csv.js';
import { dialog, h, svg } from './dom.js';
import { t } from './i18n.js';

/** The least contrast of the code with its ground: scanners need it. */
const CONTRAST = 4.5;

/** The share of the width that a logo may have: the code's highest error correction restores what it covers. */
const LOGO = 0.2;

/** The sizes of pictures in pixels; a code of 1024 is printed sharply on 8 cm. */
const SIZES = [256, 512, 1024, 2048];

/** The white border in modules, as the standard requires it, and a wider one. */
const MARGINS = [4, 8];

/** The button that opens the dialog of a link. */
export const qrButton = (link, text = t('qr.short')) => h('button', {
  type: 'button', 'data-qr': link.shortCode, 'aria-label': `${t('qr')}: ${link.shortCode}`, click: () => open(link),
}, text);

/** The relative luminance of a colour such as #0f5c55, as WCAG defines it. */
function luminance(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** The fault of two colours, if scanners could not read them. */
function fault(dark, light) {
  const [code, ground] = [luminance(dark), luminance(light)];
  if (code > ground) return t('qr.inverted');
  const contrast = (ground + 0.05) / (code + 0.05);
  return contrast < CONTRAST ? t('qr.contrast', { contrast: contrast.toFixed(1), least: CONTRAST }) : null;
}

/** The modules of a drawing of the service: the width in modules, without its border, and their path. */
async function modules(code, level) {
  const drawn = await (await file(`/v1/links/${code}/qr?level=${level}`, 'image/svg+xml')).text();
  const root = new DOMParser().parseFromString(drawn, 'image/svg+xml').documentElement;
  const [, , whole] = root.getAttribute('viewBox').split(' ').map(Number);
  return { width: whole - 2 * MARGINS[0], path: root.lastElementChild.getAttribute('d') };
}

/** The places of a code's parts, in modules: its whole width, the shift of its path, and the square of its logo. */
function places({ width, margin }) {
  const whole = width + 2 * margin;
  const size = width * LOGO;
  return { whole, shift: margin - MARGINS[0], size, at: (whole - size) / 2 };
}

/** Draws a code on a canvas. A module has a whole number of pixels, so that its edges are sharp. */
function draw(canvas, { path, dark, light, logo, pixels, ...code }) {
  const { whole, shift, size, at } = places(code);
  const scale = Math.floor(pixels / whole);
  const rest = Math.floor((pixels - scale * whole) / 2);
  Object.assign(canvas, { width: pixels, height: pixels });
  const context = canvas.getContext('2d');
  context.fillStyle = light;
  context.fillRect(0, 0, pixels, pixels);
  context.setTransform(scale, 0, 0, scale, rest, rest);
  context.fillStyle = dark;
  context.translate(shift, shift);
  context.fill(new Path2D(path));
  context.translate(-shift, -shift);
  if (!logo) return;
  context.fillStyle = light;
  context.fillRect(at - 0.5, at - 0.5, size + 1, size + 1);
  const { width, height } = logo.picture;
  const fit = size / Math.max(width, height);
  context.drawImage(logo.picture, at + (size - width * fit) / 2, at + (size - height * fit) / 2, width * fit, height * fit);
}

/** The same as the text of an SVG file, which contains its logo. */
function drawing({ path, dark, light, logo, pixels, ...code }) {
  const { whole, shift, size, at } = places(code);
  const made = svg('svg', { viewBox: `0 0 ${whole} ${whole}`, width: pixels, height: pixels },
    svg('path', { fill: light, d: `M0 0h${whole}v${whole}H0z` }),
    svg('path', { fill: dark, 'shape-rendering': 'crispEdges', d: path, transform: `translate(${shift} ${shift})` }));
  if (logo) {
    made.append(
      svg('rect', { x: at - 0.5, y: at - 0.5, width: size + 1, height: size + 1, fill: light }),
      svg('image', { x: at, y: at, width: size, height: size, href: logo.address }));
  }
  return `${new XMLSerializer().serializeToString(made)}\n`;
}

/** A logo from a file: a picture to draw, and an address that contains it. */
async function logoOf(chosen) {
  if (!chosen) return null;
  const reader = new FileReader();
  const address = new Promise((resolve) => { reader.addEventListener('loadend', () => resolve(reader.result)); });
  reader.readAsDataURL(chosen);
  return { picture: await createImageBitmap(chosen), address: await address };
}

/** Opens the dialog. */
function open(link) {
  const looks = { dark: '#000000', light: '#ffffff', margin: MARGINS[0], logo: null, pixels: SIZES[2] };
  let drawn = null;
  let turn = 0;
  const canvas = h('canvas', { class: 'qr', role: 'img', 'aria-label': t('qr.alt', { url: link.shortUrl }) });
  const said = h('div', { role: 'status' });
  const name = (kind) => `${link.shortCode}.${kind}`;
  const saves = [
    h('button', { type: 'button', 'data-svg': '', click: () =>
      save(name('svg'), new Blob([drawing(drawn)], { type: 'image/svg+xml' })) }, t('qr.keep')),
    h('button', { type: 'button', class: 'main', 'data-png': '', click: () =>
      canvas.toBlob((blob) => save(name('png'), blob), 'image/png') }, t('qr.keep.png')),
  ];
  const redraw = async (refused = null) => {
    const mine = ++turn;
    const wrong = fault(looks.dark, looks.light);
    // A code that a logo covers needs the highest error correction.
    const code = wrong ? {} : await part(() => modules(link.shortCode, looks.logo ? 'H' : 'M'));
    if (mine !== turn) return;
    said.replaceChildren(...[
      wrong && h('p', { class: 'notice bad', 'data-fault': '' }, wrong), code.failure && notice(code.failure, () => redraw()),
      refused && h('p', { class: 'notice warn' }, refused),
    ].filter(Boolean));
    drawn = code.path ? { ...code, ...looks } : null;
    if (drawn) draw(canvas, drawn);
    for (const button of saves) button.disabled = !drawn;
  };
  const change = (member, read) => async ({ target }) => {
    let refused = null;
    try {
      looks[member] = await read(target);
    } catch {
      target.value = '';
      looks[member] = null;
      refused = t('qr.no-picture');
    }
    redraw(refused);
  };
  const field = (member, element) => h('div', {}, h('label', { for: `qr-${member}` }, t(`qr.${member}`)), element);
  const colour = (member) => field(member, h('input', {
    id: `qr-${member}`, type: 'color', value: looks[member], input: change(member, ({ value }) => value),
  }));
  const choice = (member, values, textOf) => field(member, h('select', {
    id: `qr-${member}`, change: change(member, ({ value }) => Number(value)),
  }, values.map((value) => h('option', { value, selected: value === looks[member] }, textOf(value)))));
  const opened = dialog({ title: t('qr'), class: 'studio' },
    h('p', { class: 'code small' }, link.shortUrl),
    h('div', { class: 'pair' }, canvas, h('div', { class: 'fields' },
      choice('pixels', SIZES, (value) => `${value} × ${value}`),
      choice('margin', MARGINS, (value) => t(`qr.margin.${value}`)),
      h('div', { class: 'pair' }, colour('dark'), colour('light')),
      field('logo', h('input', {
        id: 'qr-logo', type: 'file', accept: 'image/png,image/jpeg', change: change('logo', ({ files }) => logoOf(files[0])),
      })))),
    said,
    h('div', { class: 'row' }, h('button', { type: 'button', click: () => opened.close() }, t('close')), saves));
  redraw();
}
