/* Draws the model of the page. All texts come from a file that nobody trusts: they are set as textContent, never as HTML. */
"use strict";
(() => {
  const model = JSON.parse(document.getElementById("model").textContent);
  const nodes = new Map(model.nodes.map((node) => [node.id, node]));
  const unfolded = new Set();
  const SVG = "http://www.w3.org/2000/svg";
  const LARGE = 700; // nodes that dagre lays out within seconds
  const READABLE = 0.5; // the smallest scale at which text can be read
  const TEXTLESS = 0.2; // the scale below which it is not drawn
  const byId = (id) => document.getElementById(id);
  const graph = byId("graph");
  const scene = byId("scene");
  const panel = byId("panel");
  let selected = null;
  let places = new Map(); // where the visible nodes are
  let extent = { width: 1, height: 1 };
  const view = { x: 0, y: 0, scale: 1 };
  let items = []; // what is drawn: { element, left, top, right, bottom, shown }

  // ---- elements
  function element(name, properties = {}, ...children) {
    const result = document.createElement(name);
    Object.assign(result, properties);
    result.append(...children);
    return result;
  }

  function svg(name, attributes = {}, ...children) {
    const result = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) result.setAttribute(key, value);
    result.append(...children);
    return result;
  }

  const shortened = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);
  const titleOf = (node) => (node.kind === "input" || node.kind === "placeholder" ? node.name || node.uid : node.op);

  // ---- what is visible
  function ancestors(node) {
    const result = [];
    for (let id = node.parent; id; id = nodes.get(id).parent) result.unshift(id);
    return result;
  }

  /* The node, or the outermost folded block that contains it. */
  function shown(node) {
    const folded = ancestors(node).find((id) => !unfolded.has(id));
    return folded ? nodes.get(folded) : node;
  }

  function visible() {
    const ids = new Set();
    for (const node of nodes.values()) {
      if (node.kind === "block" && unfolded.has(node.id)) continue;
      if (shown(node) === node) ids.add(node.id);
    }
    const edges = new Map();
    for (const edge of model.edges) {
      const from = shown(nodes.get(edge.from)).id;
      const to = shown(nodes.get(edge.to)).id;
      const key = from + " " + to;
      if (!edges.has(key) && (from !== to || edge.from === edge.to)) edges.set(key, { ...edge, from, to });
    }
    return { ids, edges: [...edges.values()] };
  }

  function rows(node) {
    const result = [{ text: shortened(titleOf(node), 40), style: "op" }];
    if (node.name && titleOf(node) !== node.name) result.push({ text: shortened(node.name, 40), style: "" });
    if (node.kind === "input" || node.kind === "placeholder") result.push({ text: shortened(node.shape, 44), style: "leaf" });
    if (node.kind === "operation") {
      for (const uid of node.leaves.slice(0, 4)) {
        const leaf = model.leaves[uid];
        result.push({ text: shortened(`${leaf.name || leaf.kind} ${leaf.shape}`, 44), style: "leaf" });
      }
    }
    return result;
  }

  // ---- layout and drawing
  function sizeOf(node) {
    const lines = rows(node);
    const width = Math.max(60, ...lines.map((line) => line.text.length * (line.style === "leaf" ? 5.8 : 7.4) + 18));
    return { width, height: 10 + 17 * lines.length };
  }

  /* Rows of nodes by the longest path from an input. For graphs that dagre, which is recursive, would take minutes or a deep stack for. */
  function arrangeInRows({ ids, edges }) {
    const order = new Map(model.nodes.map((node, i) => [node.id, i])); // operands first, so an edge against it closes a loop
    const isForward = (edge) => order.get(edge.from) < order.get(edge.to);
    const ranks = new Map([...ids].map((id) => [id, 0]));
    const sorted = edges.filter(isForward).sort((a, b) => order.get(a.to) - order.get(b.to));
    for (const edge of sorted) ranks.set(edge.to, Math.max(ranks.get(edge.to), ranks.get(edge.from) + 1));
    const widths = new Map();
    const placed = new Map();
    for (const id of [...ids].sort((a, b) => order.get(a) - order.get(b))) {
      const size = sizeOf(nodes.get(id));
      const left = widths.get(ranks.get(id)) || 20;
      widths.set(ranks.get(id), left + size.width + 24);
      placed.set(id, { ...size, x: left + size.width / 2, y: 40 + 100 * ranks.get(id) });
    }
    const points = (edge) => {
      const [a, b] = [placed.get(edge.from), placed.get(edge.to)];
      const down = b.y > a.y;
      return [{ x: a.x, y: a.y + (down ? a.height / 2 : -a.height / 2) }, { x: b.x, y: b.y + (down ? -b.height / 2 : b.height / 2) }];
    };
    const routed = new Map(edges.map((edge) => {
      const [a, b] = points(edge);
      return [edge.from + " " + edge.to, { points: [a, b], x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 }];
    }));
    const layout = {
      node: (id) => placed.get(id), edge: (from, to) => routed.get(from + " " + to),
      graph: () => ({ width: Math.max(...widths.values()), height: 80 + 100 * Math.max(...ranks.values()) }),
    };
    return { layout, clusters: [] };
  }

  function arrange(content) {
    if (content.ids.size > LARGE) return arrangeInRows(content);
    const { ids, edges } = content;
    const layout = new dagre.graphlib.Graph({ compound: true });
    // The default ranker tries to shorten edges, in time that grows with the square of the graph.
    layout.setGraph({ nodesep: 24, ranksep: 44, marginx: 20, marginy: 20, ranker: ids.size > 300 ? "longest-path" : "network-simplex" });
    layout.setDefaultEdgeLabel(() => ({}));
    for (const id of ids) layout.setNode(id, sizeOf(nodes.get(id)));
    const clusters = [...unfolded].filter((id) => ancestors(nodes.get(id)).every((outer) => unfolded.has(outer)));
    for (const id of clusters) layout.setNode(id, {});
    for (const id of [...ids, ...clusters]) {
      const parent = nodes.get(id).parent;
      if (parent) layout.setParent(id, parent);
    }
    for (const id of clusters) if (!layout.children(id).length) layout.removeNode(id);
    for (const edge of edges) layout.setEdge(edge.from, edge.to, { width: edge.label.length * 5.8, height: 14, labelpos: "c" });
    dagre.layout(layout);
    return { layout, clusters: clusters.filter((id) => layout.hasNode(id)) };
  }

  function draw() {
    const content = visible();
    const { layout, clusters } = arrange(content);
    places = new Map([...content.ids].map((id) => [id, layout.node(id)]));
    extent = layout.graph();
    const route = (edge) => layout.edge(edge.from, edge.to);
    items = [
      ...clusters.map((id) => item(drawCluster(nodes.get(id), layout.node(id)), cornersOf(layout.node(id)))),
      ...content.edges.map((edge) => item(drawEdge(edge, route(edge)), route(edge).points)),
      ...[...content.ids].map((id) => item(drawNode(nodes.get(id), layout.node(id)), cornersOf(layout.node(id)))),
    ];
    scene.replaceChildren(...items.map(({ element }) => element));
    move();
  }

  function drawNode(node, place) {
    const name = [titleOf(node), node.name].filter(Boolean).join(" ");
    const group = svg("g", {
      class: ["node", node.kind, node.change || "", selected === node ? "selected" : ""].join(" ").trim(), tabindex: 0, role: "button",
      "aria-label": node.kind === "block" ? `block ${name}, folded` : name, "data-id": node.id,
      transform: `translate(${place.x - place.width / 2} ${place.y - place.height / 2})`,
    }, svg("rect", { width: place.width, height: place.height }));
    rows(node).forEach((line, i) => {
      const text = svg("text", { x: place.width / 2, y: 18 + 17 * i, "text-anchor": "middle", class: line.style });
      text.textContent = line.text;
      group.append(text);
    });
    return group;
  }

  function drawCluster(node, place) {
    const label = svg("text", { x: 8, y: 16 });
    label.textContent = "− " + shortened([node.op, node.name].filter(Boolean).join(" "), 60);
    return svg("g", {
      class: "cluster", "data-fold": node.id, tabindex: 0, role: "button", "aria-label": `fold block ${node.op} ${node.name}`,
      transform: `translate(${place.x - place.width / 2} ${place.y - place.height / 2})`,
    }, svg("rect", { width: place.width, height: place.height }), label);
  }

  function drawEdge(edge, place) {
    const points = place.points.map((p) => `${p.x.toFixed(1)} ${p.y.toFixed(1)}`);
    const isBack = place.points[0].y > place.points[place.points.length - 1].y;
    const text = svg("text", { x: place.x, y: place.y + 4, "text-anchor": "middle" });
    text.textContent = edge.label;
    return svg("g", { class: isBack ? "edge back" : "edge" }, svg("path", { d: "M" + points.join("L"), "marker-end": "url(#arrow)" }), text);
  }

  const cornersOf = (place) => [-1, 1].map((sign) => ({ x: place.x + (sign * place.width) / 2, y: place.y + (sign * place.height) / 2 }));

  function item(element, points) {
    const [xs, ys] = [points.map((p) => p.x), points.map((p) => p.y)];
    return { element, left: Math.min(...xs), top: Math.min(...ys), right: Math.max(...xs), bottom: Math.max(...ys), shown: true };
  }

  // ---- moving about
  let isMoving = false;
  function move() {
    if (!isMoving) requestAnimationFrame(paint);
    isMoving = true;
  }

  /* Moves the scene. Browsers are slow with thousands of elements, even outside the screen: those of large graphs are left out. */
  function paint() {
    isMoving = false;
    scene.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
    scene.classList.toggle("textless", view.scale < TEXTLESS);
    if (items.length <= LARGE) return; // all can be reached by the Tab key
    const margin = 100;
    const left = -view.x / view.scale - margin, right = left + graph.clientWidth / view.scale + 2 * margin;
    const top = -view.y / view.scale - margin, bottom = top + graph.clientHeight / view.scale + 2 * margin;
    for (const it of items) {
      const shown = it.left < right && it.right > left && it.top < bottom && it.bottom > top;
      if (shown === it.shown) continue;
      it.shown = shown;
      if (shown) it.element.removeAttribute("display");
      else it.element.setAttribute("display", "none");
    }
  }

  function zoom(factor, x = graph.clientWidth / 2, y = graph.clientHeight / 2) {
    const scale = Math.min(4, Math.max(0.02, view.scale * factor));
    view.x = x - ((x - view.x) * scale) / view.scale;
    view.y = y - ((y - view.y) * scale) / view.scale;
    view.scale = scale;
    move();
  }

  function fit() {
    const whole = Math.min(1.2, graph.clientWidth / extent.width, graph.clientHeight / extent.height);
    view.scale = Math.max(whole, READABLE); // of what is larger, the beginning
    view.x = Math.max((graph.clientWidth - extent.width * view.scale) / 2, graph.clientWidth / 2 - startX() * view.scale);
    view.y = Math.max(0, (graph.clientHeight - extent.height * view.scale) / 2);
    move();
  }

  /* The horizontal place of the topmost node. */
  function startX() {
    let first = { x: extent.width / 2, y: Infinity };
    for (const place of places.values()) if (place.y < first.y) first = place;
    return first.x;
  }

  /* Keeps a node where it was on the screen while the layout changes around it. */
  function center(id, at = { x: graph.clientWidth / 2, y: graph.clientHeight / 2 }) {
    const place = places.get(id);
    if (!place) return;
    view.x = at.x - place.x * view.scale;
    view.y = at.y - place.y * view.scale;
    move();
  }

  function onScreen(id) {
    const place = places.get(id);
    return place && { x: view.x + place.x * view.scale, y: view.y + place.y * view.scale };
  }

  // ---- details
  function definition(pairs) {
    const list = element("dl");
    for (const [term, text] of pairs) list.append(element("dt", { textContent: term }), element("dd", { textContent: text }));
    return list;
  }

  function histogram(leaf) {
    const counts = leaf.histogram || [];
    const highest = Math.max(1, ...counts);
    const bars = counts.map((n, i) => svg("rect", { x: i, y: 60 - (60 * n) / highest, width: 0.9, height: (60 * n) / highest }));
    return svg("svg", {
      class: "histogram", viewBox: `0 0 ${counts.length} 60`, preserveAspectRatio: "none", role: "img",
      "aria-label": `histogram of ${leaf.size} values from ${leaf.min} to ${leaf.max}`,
    }, ...bars);
  }

  function describeLeaf(leaf) {
    const number = (x) => (x === undefined ? "" : Number(x).toPrecision(5));
    const parts = [
      element("h3", { textContent: leaf.name || leaf.uid }),
      definition([[leaf.kind, `${leaf.shape} ${leaf.dtype}`], ["elements", leaf.size === null ? "not known yet" : leaf.size.toLocaleString("en")]]),
    ];
    if (leaf.size === null) return parts;
    if (leaf.min !== undefined) {
      parts.push(definition([["range", `${number(leaf.min)} to ${number(leaf.max)}`], ["mean ± std", `${number(leaf.mean)} ± ${number(leaf.std)}`]]));
    }
    if (leaf.not_finite) parts.push(element("p", { textContent: `${leaf.not_finite.toLocaleString("en")} values are NaN or infinite` }));
    if (leaf.histogram.length) parts.push(histogram(leaf));
    parts.push(element("p", { className: "faint", textContent: "first values: " + leaf.first.join(", ") }));
    return parts;
  }

  /* The parameters of a node, or of all nodes inside a block. */
  function leavesOf(node) {
    const inside = [...nodes.values()].filter((n) => n === node || (node.kind === "block" && ancestors(n).includes(node.id)));
    return [...new Set(inside.flatMap((n) => n.leaves || []))];
  }

  function toggle(node) {
    return element("button", { type: "button", textContent: unfolded.has(node.id) ? "fold" : "unfold", onclick: () => fold(node) });
  }

  function describe(node) {
    const parts = [element("h2", { textContent: [titleOf(node), node.name].filter(Boolean).join(" · ") })];
    if (node.kind === "block") parts.push(toggle(node));
    parts.push(definition([["kind", node.kind + (node.sparse ? ", sparse" : "")], ...(node.uid ? [["uid", node.uid]] : [])]));
    if (node.differences) parts.push(element("h3", { textContent: "Differences" }), list(node.differences));
    if (node.shape) parts.push(definition([["shape", node.shape], ["type", node.dtype]]));
    if (Object.keys(node.attributes || {}).length) parts.push(element("h3", { textContent: "Attributes" }), definition(Object.entries(node.attributes)));
    for (const [title, variables] of [["Operands", node.operands], ["Outputs", node.outputs]]) {
      if (!variables || !variables.length) continue;
      parts.push(element("h3", { textContent: title }), definition(variables.map((v) => [shortened(v.name, 30), `${v.shape} ${v.dtype}`])));
    }
    const leaves = leavesOf(node);
    for (const uid of leaves.slice(0, 20)) parts.push(...describeLeaf(model.leaves[uid]));
    if (leaves.length > 20) parts.push(element("p", { textContent: `and ${leaves.length - 20} more parameters and constants` }));
    return parts;
  }

  const list = (texts) => element("ul", {}, ...texts.map((text) => element("li", { textContent: text })));

  function overview() {
    const leaves = Object.values(model.leaves);
    const count = (kind) => leaves.filter((leaf) => leaf.kind === kind).reduce((sum, leaf) => sum + (leaf.size || 0), 0).toLocaleString("en");
    const operations = model.nodes.filter((node) => node.kind === "operation").length;
    const parts = [
      element("h2", { textContent: model.title }),
      definition([["operations", operations.toLocaleString("en")], ["in parameters", count("parameter")], ["in constants", count("constant")]]),
    ];
    if (model.differences) parts.push(element("h3", { textContent: "Differences" }), list(model.differences));
    parts.push(element("p", { className: "faint", textContent: "Click a node for its details. A double click, or Enter twice, unfolds a block." }));
    return parts;
  }

  function select(node) {
    selected = node;
    for (const group of scene.querySelectorAll(".node")) group.classList.toggle("selected", node !== null && group.dataset.id === node.id);
    panel.replaceChildren(...(node ? describe(node) : overview()));
    panel.scrollTop = 0;
  }

  function fold(node) {
    const isFolded = !unfolded.has(node.id);
    const at = onScreen(node.id);
    if (isFolded) unfolded.add(node.id);
    else unfolded.delete(node.id);
    draw();
    if (isFolded) {
      const first = model.nodes.find((n) => n.parent === node.id && places.has(n.id));
      if (first) center(first.id, at);
    } else center(node.id);
    select(node);
  }

  function reveal(node) {
    for (const id of ancestors(node)) unfolded.add(id);
    draw();
    view.scale = Math.max(view.scale, 0.8);
    center(node.id);
    select(node);
  }

  function unfoldAll() {
    for (const node of nodes.values()) if (node.kind === "block") unfolded.add(node.id);
    draw();
    fit();
  }

  // ---- search
  function matchesOf(query) {
    const words = query.toLowerCase();
    const texts = (node) => [node.name, node.op, node.uid || "", ...(node.leaves || []).map((uid) => model.leaves[uid].name)];
    return [...nodes.values()].filter((node) => texts(node).some((text) => text.toLowerCase().includes(words)));
  }

  function search() {
    const query = byId("query").value.trim();
    const matches = query ? matchesOf(query) : [];
    const items = matches.slice(0, 50).map((node) => {
      const path = [...ancestors(node).map((id) => nodes.get(id).name || nodes.get(id).op), [titleOf(node), node.name].filter(Boolean).join(" ")];
      const choose = () => {
        byId("matches").hidden = true;
        reveal(node);
      };
      return element("li", {}, element("button", { type: "button", textContent: path.join(" › "), onclick: choose }));
    });
    if (query && items.length < matches.length) items.push(element("li", {}, element("p", { textContent: `and ${matches.length - items.length} more` })));
    if (query && !matches.length) items.push(element("li", {}, element("p", { textContent: "nothing matches" })));
    byId("matches").replaceChildren(...items);
    byId("matches").hidden = !query;
  }

  // ---- events
  const nodeOf = (event) => {
    const group = event.target.closest("[data-id]");
    return group && nodes.get(group.dataset.id);
  };
  const clusterOf = (event) => {
    const group = event.target.closest("[data-fold]");
    return group && (event.type === "keydown" || event.target.tagName === "text") && nodes.get(group.dataset.fold);
  };

  const pointers = new Map();
  let dragged = 0;
  graph.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, event);
    dragged = 0;
  });
  graph.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const others = [...pointers.values()].filter((p) => p.pointerId !== event.pointerId);
    if (others.length) {
      const distance = (p) => Math.hypot(p.clientX - others[0].clientX, p.clientY - others[0].clientY) || 1;
      const box = graph.getBoundingClientRect();
      zoom(distance(event) / distance(before), (event.clientX + others[0].clientX) / 2 - box.left, (event.clientY + others[0].clientY) / 2 - box.top);
    } else {
      view.x += event.clientX - before.clientX;
      view.y += event.clientY - before.clientY;
      move();
    }
    dragged += Math.hypot(event.clientX - before.clientX, event.clientY - before.clientY);
    pointers.set(event.pointerId, event);
  });
  for (const name of ["pointerup", "pointercancel", "pointerleave"]) graph.addEventListener(name, (event) => pointers.delete(event.pointerId));
  graph.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = graph.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 400), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  graph.addEventListener("click", (event) => {
    if (dragged > 4) return;
    const cluster = clusterOf(event);
    if (cluster) fold(cluster);
    else select(nodeOf(event) || null);
  });
  graph.addEventListener("dblclick", (event) => {
    const node = nodeOf(event);
    if (node && node.kind === "block") fold(node);
  });
  graph.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    if (event.key in steps) {
      view.x += steps[event.key][0];
      view.y += steps[event.key][1];
      move();
      event.preventDefault();
    } else if (event.key === "Enter" || event.key === " ") {
      const node = nodeOf(event) || clusterOf(event);
      if (!node) return;
      event.preventDefault();
      if (node.kind === "block" && (selected === node || unfolded.has(node.id))) fold(node);
      else select(node);
    }
  });
  byId("query").addEventListener("input", search);
  byId("query").addEventListener("keydown", (event) => {
    const first = byId("matches").querySelector("button");
    if (event.key === "Enter" && first) first.click();
    if (event.key === "Escape") byId("matches").hidden = true;
  });
  byId("fold").onclick = () => {
    unfolded.clear();
    draw();
    fit();
  };
  byId("unfold").onclick = unfoldAll;
  byId("larger").onclick = () => zoom(1.3);
  byId("smaller").onclick = () => zoom(1 / 1.3);
  byId("fit").onclick = fit;
  window.addEventListener("resize", fit);

  byId("title").textContent = model.title;
  draw();
  fit();
  select(null);
})();
