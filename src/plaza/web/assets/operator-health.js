// The operators' health page: figures every two seconds, the jobs, and the progress of an audit.

import { number } from "./chart.js";
import { openStream, stateWriter } from "./event-stream.js";
import { root } from "./root.js";

const formatBytes = (bytes) => {
  for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) if (bytes >= size) return `${(bytes / size).toFixed(1)} ${unit}`;
  return `${bytes} B`;
};

function updateFigures(element, figures) {
  for (const shown of element.querySelectorAll("[data-figure]")) {
    const value = shown.dataset.figure.split(".").reduce((object, name) => object?.[name], figures);
    shown.textContent = value === null || value === undefined ? "–" : number.format(value);
  }
  figures.nodes.forEach((node, index) => {
    for (const shown of element.querySelectorAll(`[data-node="${index}"] [data-field]`)) {
      const value = node[shown.dataset.field];
      shown.textContent = shown.dataset.field.endsWith("Memory") ? formatBytes(value) : number.format(value);
    }
    const warning = element.querySelector(`[data-warning="${index}"]`);
    if (warning) Object.assign(warning, { textContent: node.memoryWarning, hidden: !node.memoryWarning });
  });
}

function updateRoutes(body, routes) {
  body.replaceChildren(...routes.map((route) => {
    const row = document.createElement("tr"), name = document.createElement("th");
    name.scope = "row";
    name.append(Object.assign(document.createElement("code"), { textContent: route.route }));
    row.append(name);
    const mean = route.mean_ms === null ? "stream" : `${number.format(route.mean_ms)} ms`;
    for (const text of [number.format(route.per_second), mean, number.format(route.failed)]) {
      row.append(Object.assign(document.createElement("td"), { className: "num n", textContent: text }));
    }
    return row;
  }));
}

// Moves the progress bar of a running audit, or loads the section again when an audit has started or ended.
function updateAudit(update, applyFragment) {
  const section = document.getElementById("audit"), bar = document.getElementById("progress");
  if (update.audit && bar) {
    Object.assign(bar, { max: update.audit.total, value: update.audit.keys });
    for (const name of ["keys", "total", "findings"]) {
      document.getElementById(`audit-${name}`).textContent = number.format(update.audit[name]);
    }
  } else if (update.audit ? !bar : bar || String(update.audited) !== section.dataset.ended) {
    fetch(`${root}/app/operator/health/audit`).then((response) => (response.ok ? response.text() : "")).then(applyFragment);
  }
}

export function start(element, { applyFragment }) {
  function update(data) {
    updateFigures(element, data.figures);
    document.getElementById("h-span").textContent = `${Math.round(data.figures.seconds)} s`;
    if (data.charts) applyFragment(data.charts);
    if (data.figures.routes.length) updateRoutes(document.getElementById("h-routes"), data.figures.routes);
    if (!document.getElementById("jobs-table").contains(document.activeElement)) applyFragment(data.jobs);
    updateAudit(data, applyFragment);
  }

  openStream(element.dataset.from, update, { onState: stateWriter(document.getElementById("h-state")) });
}
