// The operators' page of how it goes: figures every two seconds, the jobs, and an audit's progress.

import { line, number } from "./chart.js";
import { follow, sayIn } from "./follow.js";

const size = (bytes) => {
  for (const [unit, word] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) if (bytes >= unit) return `${(bytes / unit).toFixed(1)} ${word}`;
  return `${bytes} B`;
};

function figures(element, now) {
  for (const shown of element.querySelectorAll("[data-figure]")) {
    const value = shown.dataset.figure.split(".").reduce((at, name) => at?.[name], now);
    shown.textContent = value === null || value === undefined ? "–" : number.format(value);
  }
  now.nodes.forEach((node, n) => {
    for (const shown of element.querySelectorAll(`[data-node="${n}"] [data-of]`)) {
      const value = node[shown.dataset.of];
      shown.textContent = shown.dataset.of.endsWith("Memory") ? size(value) : number.format(value);
    }
  });
}

function routes(body, now) {
  body.replaceChildren(...now.routes.map((one) => {
    const row = document.createElement("tr"), name = document.createElement("th");
    name.scope = "row";
    name.append(Object.assign(document.createElement("code"), { textContent: one.route }));
    row.append(name);
    for (const text of [number.format(one.per_second), one.mean_ms === null ? "a stream" : `${number.format(one.mean_ms)} ms`, number.format(one.failed)]) {
      row.append(Object.assign(document.createElement("td"), { className: "num n", textContent: text }));
    }
    return row;
  }));
}

function audit(now, put) {
  const box = document.getElementById("audit"), bar = document.getElementById("progress");
  if (now.audit && bar) {
    Object.assign(bar, { max: now.audit.total, value: now.audit.keys });
    for (const name of ["keys", "total", "findings"]) {
      document.getElementById(`audit-${name}`).textContent = number.format(now.audit[name]);
    }
  } else if (now.audit ? !bar : bar || String(now.audited) !== box.dataset.ended) {
    fetch("/app/operator/health/audit").then((answer) => (answer.ok ? answer.text() : "")).then(put);
  }
}

export function start(element, { put }) {
  const draw = line(document.getElementById("h-line"), 150);

  function tell(now) {
    figures(element, now.figures);
    document.getElementById("h-span").textContent = `${Math.round(now.figures.seconds)} s`;
    draw(now.figures.requestsPerSecond);
    if (now.figures.routes.length) routes(document.getElementById("h-routes"), now.figures);
    if (!document.getElementById("jobs-table").contains(document.activeElement)) put(now.jobs);
    audit(now, put);
  }

  follow(element.dataset.from, tell, { say: sayIn(document.getElementById("h-state")) });
}
