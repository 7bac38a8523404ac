// What makes the console's pages nicer. Everything works without it, in UTC.
"use strict";
(function () {
  const short = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const long = new Intl.DateTimeFormat(undefined, { year: "numeric", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

  // Times come in UTC: they are shown in the viewer's zone, and the UTC stays on hover.
  function times(root) {
    for (const t of root.querySelectorAll("time[datetime]:not([data-local])")) {
      const at = new Date(t.dateTime);
      if (isNaN(at)) continue;
      t.textContent = (Math.abs(Date.now() - at) > 300 * 864e5 ? long : short).format(at);
      t.dataset.local = "";
    }
  }

  // On small screens the menu is folded.
  function menu() {
    const m = document.getElementById("menu");
    if (m && matchMedia("(max-width: 60rem)").matches) m.open = false;
  }

  document.addEventListener("click", function (e) {
    const b = e.target.closest("[data-copy]");
    if (!b) return;
    const from = document.getElementById(b.dataset.copy);
    navigator.clipboard.writeText(from.textContent).then(
      function () { b.textContent = "Copied"; },
      function () { getSelection().selectAllChildren(from); });
  });

  document.addEventListener("change", function (e) {
    const name = e.target.dataset && e.target.dataset.all;
    if (!name) return;
    for (const box of e.target.form.querySelectorAll('input[type=checkbox][name="' + name + '"]')) box.checked = e.target.checked;
  });

  // A form that takes a while says so, and is sent once.
  document.addEventListener("submit", function (e) {
    if (e.target.dataset.sent) { e.preventDefault(); return; }
    if (e.target.method !== "post") return;
    e.target.dataset.sent = "1";
    e.target.setAttribute("aria-busy", "true");
  });
  addEventListener("pageshow", function () {
    for (const f of document.querySelectorAll("form[data-sent]")) { delete f.dataset.sent; f.removeAttribute("aria-busy"); }
  });

  document.documentElement.classList.add("js");
  function start() {
    menu();
    times(document);
    const go = document.querySelector("form[data-submit]");
    if (go) go.requestSubmit();
    document.body.addEventListener("htmx:load", function (e) { times(e.detail.elt.parentNode || document); });
    // A chart isn't drawn anew while it is read, by table or keyboard, or nobody sees it.
    document.body.addEventListener("htmx:beforeRequest", function (e) {
      if (!e.target.matches(".anew")) return;
      const chart = e.target.closest(".charts");
      if (document.hidden || chart.contains(document.activeElement) || chart.querySelector("details[open]")) e.preventDefault();
    });
    document.body.addEventListener("htmx:sseMessage", function () { times(document); });
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
