// Looks at pictures as a reader does: where each text lies and on what, in which colours, and what opens.
"use strict";

const SLACK = 1.5; // pixels by which boxes of letters may touch, or leave what they lie in

function place(element) {
  const box = element.getBoundingClientRect();
  return { left: box.left, top: box.top, right: box.right, bottom: box.bottom };
}

function within(inner, outer, slack) {
  return inner.left >= outer.left - slack && inner.right <= outer.right + slack
    && inner.top >= outer.top - slack && inner.bottom <= outer.bottom + slack;
}

function overlap(a, b) {
  return Math.min(a.right, b.right) - Math.max(a.left, b.left) > SLACK
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2 * SLACK;
}

function area(box) {
  return (box.right - box.left) * (box.bottom - box.top);
}

// The part of a text's box that letters lie in: boxes are as high as lines.
function letters(text) {
  const box = place(text), height = box.bottom - box.top;
  return { ...box, top: box.top + 0.15 * height, bottom: box.bottom - 0.1 * height };
}

function luminance(colour) {
  const parts = colour.match(/[\d.]+/g).slice(0, 3).map((one) => one / 255)
    .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
}

// Of a text and of the smallest rectangle that it lies in, as the Web Content Accessibility Guidelines have it.
function contrast(text, box, rects) {
  const middle = { x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2 };
  const behind = rects.filter(({ box: one }) => one.left <= middle.x && middle.x <= one.right
    && one.top <= middle.y && middle.y <= one.bottom).sort((a, b) => area(a.box) - area(b.box))[0];
  const pair = [getComputedStyle(text).fill, getComputedStyle(behind.element).fill].map(luminance);
  return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
}

function measure(svg) {
  const frame = place(svg), problems = [];
  const texts = [...svg.querySelectorAll("text")].map((element) => ({ element, box: letters(element) }));
  const rects = [...svg.querySelectorAll("rect")].map((element) => ({ element, box: place(element) }));
  for (const element of svg.querySelectorAll("text, rect, path, circle")) {
    if (!within(place(element), frame, SLACK)) problems.push(`outside: ${element.outerHTML.slice(0, 120)}`);
  }
  for (const { element, box } of texts) {
    const middle = { x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2 };
    for (const { element: rect, box: one } of rects) {
      const lies = one.left <= middle.x && middle.x <= one.right && one.top <= middle.y && middle.y <= one.bottom;
      if (lies && !within(box, one, SLACK)) problems.push(`leaves its ${rect.getAttribute("class")}: ${element.textContent}`);
    }
  }
  texts.forEach((one, i) => texts.slice(i + 1).forEach((other) => {
    if (overlap(one.box, other.box)) problems.push(`overlap: ${one.element.textContent} | ${other.element.textContent}`);
  }));
  rects.forEach((one, i) => rects.slice(i + 1).forEach((other) => {
    const nested = within(one.box, other.box, SLACK) || within(other.box, one.box, SLACK);
    if (!nested && overlap(one.box, other.box)) problems.push(`boxes overlap: ${other.element.outerHTML}`);
  }));
  const colours = {};
  for (const { element } of rects) {
    const style = getComputedStyle(element);
    colours[element.getAttribute("class")] = `${style.fill} ${style.stroke}`;
  }
  return {
    problems, colours,
    texts: texts.map(({ element }) => element.textContent),
    tips: [...svg.querySelectorAll("title")].map((one) => one.textContent),
    label: svg.getAttribute("aria-label"),
    role: svg.getAttribute("role"),
    contrast: Math.min(...texts.map(({ element, box }) => contrast(element, box, rects))),
    size: [frame.right - frame.left, frame.bottom - frame.top],
  };
}

// What a part that is folded shows before and after it is opened.
function opened(details) {
  const last = details.lastElementChild, seen = () => last.checkVisibility();
  const before = { seen: seen(), height: details.getBoundingClientRect().height };
  details.open = true;
  const after = { seen: seen(), height: details.getBoundingClientRect().height };
  return { title: details.querySelector("summary").textContent, before, after, text: last.textContent };
}

addEventListener("load", () => {
  const sections = {}, images = {};
  for (const section of document.querySelectorAll("section")) {
    const details = [...section.querySelectorAll("details")].map(opened);
    const pictures = [...section.querySelectorAll("svg")].map(measure);
    sections[section.dataset.name] = { pictures, details, scripts: section.querySelectorAll("script").length, text: section.textContent };
  }
  for (const image of document.querySelectorAll("img")) {
    images[image.dataset.name] = [image.naturalWidth, image.naturalHeight];
  }
  const foreign = getComputedStyle(document.querySelector("#foreign text"));
  const found = {
    sections, images,
    foreign: [foreign.fontSize, foreign.fill, getComputedStyle(document.querySelector("#foreign rect")).fill],
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    ran: window.ran === true,
  };
  document.querySelector("#found").textContent = JSON.stringify(found);
});
