// Making and finding elements, and searching sorted lists.
export const $ = (selector) => document.querySelector(selector);
export const all = (selector) => [...document.querySelectorAll(selector)];

export function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

export const plain = (text) => element("span", "plain", text);

// The index of the last entry of a sorted list that is at most `value`, by halving; -1 when there is none.
export function upTo(list, value) {
  let low = -1;
  let high = list.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (list[middle] <= value) low = middle;
    else high = middle;
  }
  return low;
}
