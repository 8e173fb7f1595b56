// The operators' page of an event: figures, shares and a line chart, updated every second.

import { lineChart, number } from "./chart.js";
import { openStream, stateWriter } from "./event-stream.js";

const SVG = "http://www.w3.org/2000/svg";
const CHART_SECONDS = 120;

function createRect(className, width) {
  const rect = document.createElementNS(SVG, "rect");
  for (const [key, value] of Object.entries({ class: className, width, height: 4 })) rect.setAttribute(key, value);
  return rect;
}

function createRow(name) {
  const row = document.createElement("tr"), head = document.createElement("th"), svg = document.createElementNS(SVG, "svg");
  head.scope = "row";
  head.append(Object.assign(document.createElement("bdi"), { textContent: name }), svg);
  for (const [key, value] of Object.entries({ viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" })) {
    svg.setAttribute(key, value);
  }
  svg.append(createRect("bar-background", 100), createRect("bar", 0));
  row.append(head, Object.assign(document.createElement("td"), { className: "num n" }));
  return row;
}

function createEmptyRow() {
  const row = document.createElement("tr");
  row.append(Object.assign(document.createElement("td"), { colSpan: 2, className: "soft", textContent: "No viewers." }));
  return row;
}

// Reuses and moves existing rows, so that a screen reader keeps its place in the table.
function updateShares(table, counts, maxShares) {
  const body = table.tBodies[0], existing = new Map();
  for (const row of body.rows) existing.set(row.querySelector("bdi")?.textContent, row);
  const ordered = Object.entries(counts).sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).slice(0, maxShares);
  const max = Math.max(...ordered.map(([, count]) => count), 1);
  const rows = ordered.map(([name, count]) => {
    const row = existing.get(name) || createRow(name);
    row.querySelector(".bar").setAttribute("width", ((100 * count) / max).toFixed(1));
    row.lastElementChild.textContent = number.format(count);
    return row;
  });
  body.replaceChildren(...(rows.length ? rows : [createEmptyRow()]));
}

export function start(element) {
  const maxShares = Number(element.dataset.maxShares);
  const addPoint = lineChart(document.getElementById("f-chart"), CHART_SECONDS);
  const show = (id, count) => { document.getElementById(id).textContent = number.format(count); };

  let peak = null;

  function update(figures) {
    // The time belongs to the peak that the page was loaded with.
    if (peak !== null && figures.maxConcurrent > peak) document.getElementById("f-peak-time")?.remove();
    peak = figures.maxConcurrent;
    show("f-now", figures.viewerCount);
    show("f-peak", figures.maxConcurrent);
    show("f-attended", figures.totalAttended);
    show("f-logins", figures.totalLogin);
    addPoint(figures.viewerCount);
    const counts = { session: figures.sessions, country: figures.countByViewingCountry, group: figures.countByUserGroup };
    for (const table of element.querySelectorAll("[data-shares]")) updateShares(table, counts[table.dataset.shares], maxShares);
    for (const note of element.querySelectorAll("[data-more]")) {
      const more = Object.keys(counts[note.dataset.more]).length - maxShares;
      note.textContent = more > 0 ? `and ${more} more` : "";
    }
  }

  openStream(element.dataset.from, update, { onState: stateWriter(document.getElementById("f-state")), onStart: addPoint.clear });
}
