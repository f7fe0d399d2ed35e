// Times as they are here, and a page that goes on with what happens: its rows change in place, and what is typed, chosen, focused
// and scrolled to stays. Without this script a page is as it was loaded, and says times in UTC.
"use strict";
(() => {
  const main = document.getElementById("main");
  const PAUSE = 1500, ALSO_EVERY = 15000;

  // Times: the server's clock counts, also where the one here is wrong.
  let ahead = 0;
  const now = () => Date.now() + ahead;
  const UNITS = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  const span = (ms) => {
    const seconds = Math.floor(Math.abs(ms) / 1000);
    const at = UNITS.findIndex(([size]) => seconds >= size);
    if (at < 0) return "";
    const [size, unit] = UNITS[at], [next, smaller] = UNITS[at + 1] ?? [];
    const rest = next ? Math.floor((seconds % size) / next) : 0;
    return `${Math.floor(seconds / size).toLocaleString("en")} ${unit}` + (rest ? ` ${rest} ${smaller}` : "");
  };
  const distance = (ms) => (span(ms) === "" ? "now" : ms < 0 ? `${span(ms)} ago` : `in ${span(ms)}`);
  const two = (number) => String(number).padStart(2, "0");
  const local = (at) =>
    `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const localize = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.getAttribute("datetime"));
      if (isNaN(at)) continue;
      time.textContent = local(at);
      const ago = time.nextElementSibling;
      if (ago?.className === "ago") ago.textContent = distance(at - now());
    }
    for (const zone of root.querySelectorAll("[data-zone]")) zone.textContent = " · times are local; UTC when pointed at";
    for (const all of root.querySelectorAll(".all")) all.hidden = false;
  };
  const tick = () => {
    localize(document);
    for (const form of main.querySelectorAll("[data-until]")) {
      const left = new Date(form.dataset.until) - now();
      form.querySelector("span").textContent = `for ${Math.max(1, Math.ceil(left / 1000))} s`;
      if (left > 0) continue;
      form.nextElementSibling.hidden = false;
      form.remove();
    }
  };

  // What is chosen in a list.
  const boxes = () => [...main.querySelectorAll("input[name=task]")];
  const count = () => {
    const all = document.getElementById("choose-all");
    if (!all) return;
    const chosen = boxes().filter((box) => box.checked).length;
    document.getElementById("chosen").textContent = `${chosen} chosen`;
    all.closest(".bar").classList.toggle("idle", chosen === 0 && document.getElementById("which").value === "chosen");
    all.checked = chosen > 0 && chosen === boxes().length;
    all.indeterminate = chosen > 0 && !all.checked;
  };
  main.addEventListener("change", (event) => {
    if (event.target.id === "choose-all") for (const box of boxes()) box.checked = event.target.checked;
    count();
  });

  // Changes a part of the page into a fresh one. What has a key stays the same element wherever it goes.
  const key = (node) => (node.nodeType === 1 ? node.id || node.dataset.key || "" : "");
  const isSame = (one, other) => one.nodeName === other.nodeName && key(one) === key(other);
  // A text that was typed over goes back with what was shown then.
  const isTyped = (form) => [...form.querySelectorAll("textarea")].some((text) => text.value !== text.defaultValue);
  const become = (old, fresh) => {
    if (old.nodeType !== 1) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    if (old.nodeName === "FORM" && isTyped(old)) return;
    if (old.nodeName === "TEXTAREA" && old.value !== fresh.value) old.value = old.defaultValue = fresh.value;
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    const kept = new Set([...fresh.children].map(key));
    for (const child of [...old.children]) if (key(child) && !kept.has(key(child))) child.remove();
    let at = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      let found = at;
      while (found && !isSame(found, child)) found = found.nextSibling;
      if (!found) {
        if (child.nodeName === "TR") child.className = "fresh";
        old.insertBefore(child, at);
        continue;
      }
      if (found === at) at = at.nextSibling;
      else old.insertBefore(found, at);
      become(found, child);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  };
  const show = (text) => {
    const page = new DOMParser().parseFromString(text, "text/html");
    const fresh = page.getElementById("main");
    if (!fresh) return;
    ahead = Number(fresh.dataset.now) - Date.now();
    localize(page);
    const focused = document.activeElement;
    for (const id of ["menu", "main"]) {
      const [old, part] = [document.getElementById(id), page.getElementById(id)];
      if (old && part) become(old, part);
    }
    if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
    tick();
    count();
  };

  ahead = Number(main.dataset.now) - Date.now();
  tick();
  count();
  setInterval(tick, 1000);

  const feed = main.dataset.live, button = document.getElementById("live");
  if (!feed || !button) return;
  let timer = null, events = null, isPaused = sessionStorage.getItem("paused") === "yes";
  const ask = async () => {
    timer = null;
    // A text that is marked is about to be copied.
    if (document.hidden || isPaused || !document.getSelection().isCollapsed) return;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      // It is sent to sign in where its session has ended.
      if (answer.redirected) return say(false, "The session has ended: load the page again to sign in");
      if (answer.ok && !isPaused) show(await answer.text());
    } catch { /* The server is away: what is shown is what was known last. */ }
  };
  const soon = () => { timer ??= setTimeout(ask, PAUSE); };
  const { only } = main.dataset;
  const heard = (event) => { if (!only || event.lastEventId.startsWith(only)) soon(); };
  const say = (isLive, why = "The server does not answer") => {
    button.hidden = false;
    button.textContent = isPaused ? "Paused" : "Live";
    button.setAttribute("aria-pressed", String(isPaused));
    button.setAttribute("aria-label", isPaused ? "Paused: go on showing what happens" : "Live: pause");
    button.classList.toggle("away", !isLive && !isPaused);
    button.title = isPaused ? "Nothing changes until you go on" : isLive ? "The page shows what happens" : why;
  };
  // A browser has six connections to a server, for all that it shows and all that it keeps to go back to: so only what is
  // seen listens.
  const listen = () => {
    say(false);
    if (events || document.hidden || isPaused) return;
    events = new EventSource(feed);
    for (const name of ["scheduled", "running", "done", "dead", "cancelled", "missed"]) events.addEventListener(name, heard);
    events.onopen = () => say(true);
    events.onerror = () => {
      say(false);
      // A browser does not ask again after a refusal.
      if (events?.readyState === EventSource.CLOSED) events = null;
    };
  };
  const leave = () => {
    events?.close();
    events = null;
    say(false);
  };
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    sessionStorage.setItem("paused", isPaused ? "yes" : "no");
    if (isPaused) return leave();
    listen();
    soon();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return leave();
    listen();
    soon();
  });
  addEventListener("pageshow", listen);
  // Times go on, and what other servers do is not told.
  setInterval(() => {
    if (!events) listen();
    soon();
  }, ALSO_EVERY);
})();
