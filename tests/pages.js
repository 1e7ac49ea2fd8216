// Loads pages in a frame of some width, and names the parts of each that a reader cannot see.
"use strict";

const SLACK = 1; // pixels that rounding makes
const PARTS = "article :is(pre, table, img, svg, object, code, h1, h2, h3, h4, p, li, dt)";

function overflow(element) {
  return getComputedStyle(element).overflowX;
}

// The nearest element around that cuts or scrolls; the page scrolls if there is none.
function holder(element) {
  while (element.parentElement && overflow(element) === "visible") element = element.parentElement;
  return element;
}

function cut(element) {
  if (element.scrollWidth > element.clientWidth + SLACK && ["hidden", "clip"].includes(overflow(element))) return true;
  const around = holder(element.parentElement);
  const outside = element.getBoundingClientRect().right > around.getBoundingClientRect().right + SLACK;
  return outside && !["auto", "scroll"].includes(overflow(around));
}

function problems(page) {
  const root = page.documentElement;
  const wide = root.scrollWidth > root.clientWidth ? [`the page is ${root.scrollWidth} pixels wide`] : [];
  const parts = [...page.querySelectorAll(PARTS)].filter((one) => one.getBoundingClientRect().width && cut(one));
  return [...wide, ...parts.map((one) => `${one.tagName} is cut: ${(one.textContent || one.src).slice(0, 60)}`)];
}

async function measure(names, widths) {
  const found = {};
  for (const width of widths) {
    const frame = document.createElement("iframe");
    frame.style = `width: ${width}px; height: 900px; border: 0`;
    document.body.append(frame);
    for (const name of names) {
      await new Promise((done) => { frame.onload = done; frame.src = name; });
      for (const one of problems(frame.contentDocument)) (found[`${name} at ${width}`] ??= []).push(one);
    }
    frame.remove();
  }
  return found;
}
