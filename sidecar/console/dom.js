// Small tools to create elements. Texts always become text nodes, so no foreign text is markup.

/** Creates an element. Attributes that are functions listen to events; those that are false or null are left out. */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat(2).filter((child) => child != null && child !== false));
  return element;
}

/** Creates an SVG element. */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Announces a text to screen readers. */
export function say(text) {
  const said = document.getElementById('said');
  // Screen readers announce an equal text only after another one.
  said.textContent = '';
  requestAnimationFrame(() => { said.textContent = text; });
}

/** True if following the address can only open a web page. */
export function isWeb(address) {
  return /^https?:\/\//i.test(address);
}

/** Copies a text, through a selection where the clipboard is not available: it needs https or localhost. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h('textarea', { class: 'unseen', 'aria-hidden': 'true' });
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand('copy');
    area.remove();
    return copied;
  }
}

/**
 * Opens a dialog with a heading. Its promise `closed` resolves when it is closed; the element that had the focus has it again
 * then.
 */
export function dialog({ title, ...attributes }, ...parts) {
  const before = document.activeElement;
  const made = h('dialog', { 'aria-labelledby': 'asked', ...attributes }, h('h2', { id: 'asked' }, title), parts);
  made.closed = new Promise((resolve) => {
    made.addEventListener('close', () => {
      made.remove();
      before?.focus?.();
      resolve(made.returnValue);
    });
  });
  document.body.append(made);
  made.showModal();
  return made;
}

/** Asks for confirmation in a dialog; returns the answer. */
export async function confirmed({ title, text, yes, no, danger }) {
  const asked = dialog({ title, 'aria-describedby': 'asked-of' },
    h('p', { id: 'asked-of' }, text),
    h('div', { class: 'row' },
      h('button', { type: 'button', click: () => asked.close(''), autofocus: true }, no),
      h('button', { type: 'button', class: danger ? 'main danger' : 'main', click: () => asked.close('yes'), 'data-yes': '' },
        yes)));
  return await asked.closed === 'yes';
}
