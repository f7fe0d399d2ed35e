// Asks for the page again when the server tells of something that has happened, and shows what is new in place of what was
// there. Where nothing is told, the page stays as it was loaded.
"use strict";
(() => {
  const main = () => document.getElementById("main");
  const feed = main().dataset.live;
  if (!feed) return;
  const PAUSE = 1500, ALSO_EVERY = 15000;
  let timer = null, asked = false;

  // Somebody who types, chooses or reads an open part is left alone.
  const isBusy = () => {
    const active = document.activeElement;
    if (active && main().contains(active) && active.matches("input, select, textarea, button, summary, pre")) return true;
    for (const field of main().querySelectorAll("input, textarea")) {
      if (field.value !== field.defaultValue || field.checked !== field.defaultChecked) return true;
    }
    return main().querySelector("dialog[open], details[open]") !== null || !document.getSelection().isCollapsed;
  };

  const show = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("main");
    if (!fresh || isBusy()) return;
    const focused = main().contains(document.activeElement) && document.activeElement.getAttribute("href");
    main().replaceChildren(...fresh.childNodes);
    for (const link of focused ? main().querySelectorAll("a[href]") : []) {
      if (link.getAttribute("href") === focused) { link.focus({ preventScroll: true }); break; }
    }
  };

  const ask = async () => {
    timer = null;
    if (document.hidden || isBusy()) { asked = true; return; }
    asked = false;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (answer.ok && !answer.redirected) show(await answer.text());
    } catch { /* The server is away: what is shown is what was known last. */ }
  };
  const soon = () => { timer ??= setTimeout(ask, PAUSE); };

  const { only } = main().dataset;
  const heard = (event) => { if (!only || event.lastEventId.startsWith(only)) soon(); };
  const say = (isLive) => { document.getElementById("live").hidden = !isLive; };
  // A browser has six connections to a server, for all that it shows and all that it keeps to go back to: so only what is
  // seen listens.
  let events = null;
  const listen = () => {
    if (events || document.hidden) return;
    events = new EventSource(feed);
    for (const name of ["scheduled", "running", "done", "dead", "cancelled", "missed"]) events.addEventListener(name, heard);
    events.onopen = () => say(true);
    events.onerror = () => say(false);
  };
  const leave = () => {
    events?.close();
    events = null;
    say(false);
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return leave();
    listen();
    soon();
  });
  addEventListener("pageshow", listen);
  // Times go on, and what other servers do is not told.
  setInterval(soon, ALSO_EVERY);
  document.addEventListener("focusout", () => { if (asked) soon(); });
})();
