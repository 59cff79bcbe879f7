// Switches between the versions that are side by side, as ../versions.js lists them; needs no server.
"use strict";
(() => {
  const versions = window.cntkjaxVersions ?? [];
  const root = new URL(document.documentElement.dataset.content_root, location.href);
  const here = decodeURIComponent(root.pathname.split("/").at(-2));
  const page = location.href.slice(root.href.length).split(/[?#]/)[0] || "index.html";
  const address = ({name, pages}) =>
    new URL(`../${encodeURIComponent(name)}/${pages.includes(page) ? page : "index.html"}`, root).href;

  const select = document.getElementById("version");
  if (versions.some(({name}) => name === here))
    select.replaceChildren(...versions.map(({name}) => new Option(name, name, name === here, name === here)));
  select.addEventListener("change", () => {
    location.href = address(versions.find(({name}) => name === select.value));
  });
  addEventListener("pageshow", () => { select.value = here; });  // after the browser's "back"

  const newest = versions.find(({name}) => name !== "dev");
  if (newest && newest.name !== here) {
    const link = document.getElementById("newest");
    link.href = address(newest);
    link.hidden = false;
  }
})();
