// Replaces the parts of the page that have changed. Without scripts the page reloads itself.
"use strict";
const main = document.getElementById("main");
const stale = document.getElementById("stale");
let heard = Date.now();

// What a reader has opened, checked or scrolled survives a replacement.
function replaced(element, replace) {
  const key = (node) => node.querySelector("summary").textContent;
  const open = new Set([...element.querySelectorAll("details[open]")].map(key));
  const ids = new Set([...element.querySelectorAll("input:checked")].map((node) => node.value));
  const wide = (of) => [...of.querySelectorAll("pre, .wide")];
  const at = wide(element).map((node) => [node.scrollLeft, node.scrollTop]);
  const fresh = replace();
  for (const node of fresh.querySelectorAll("details")) node.open = open.has(key(node));
  for (const node of fresh.querySelectorAll("input")) node.checked = ids.has(node.value);
  wide(fresh).forEach((node, place) => node.scrollTo(...(at[place] || [0, 0])));
}

function show(event) {
  heard = Date.now();
  const news = JSON.parse(event.data);
  if (news.whole !== undefined) {
    replaced(main, () => { main.innerHTML = news.whole; return main; });
  }
  for (const [id, html] of Object.entries(news.parts || {})) {
    const element = document.getElementById(id);
    if (element) {
      replaced(element, () => { element.outerHTML = html; return document.getElementById(id); });
    }
  }
}

// A browser has six connections to one server: only pages that are seen keep one.
let events = null;
let again = 0;
function follow() {
  if (events) events.close();
  events = document.hidden ? null : new EventSource(document.body.dataset.events);
  if (!events) return;
  events.onmessage = show;
  // A refused stream is asked for no more: the page itself says why.
  events.onerror = (event) => {
    if (event.target.readyState === EventSource.CLOSED) soon();
  };
}

// An answer that the page is away has no script: after it, this tab would stand still.
async function reload() {
  const answer = await fetch(location.href, { redirect: "manual" }).catch(() => null);
  if (answer && answer.status < 500 && answer.status !== 429) location.reload();
  else soon();
}

// One attempt at a time, however often the tab was looked at meanwhile.
function soon() {
  clearTimeout(again);
  again = setTimeout(reload, 5000);
}
document.addEventListener("visibilitychange", follow);
follow();
setInterval(() => {
  const age = Math.round((Date.now() - heard) / 1000);
  stale.hidden = age < 15;
  stale.textContent = `This page is ${age} s old: nothing newer can be read now.`;
}, 1000);
