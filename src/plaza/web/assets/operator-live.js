// The operators' page of an event: figures, shares and a line that move every second.

import { line, number } from "./chart.js";
import { follow, sayIn } from "./follow.js";

const SVG = "http://www.w3.org/2000/svg";
const SHARES = 12;

function rect(name, width) {
  const made = document.createElementNS(SVG, "rect");
  for (const [key, value] of Object.entries({ class: name, width, height: 4 })) made.setAttribute(key, value);
  return made;
}

function row(name) {
  const made = document.createElement("tr"), head = document.createElement("th"), svg = document.createElementNS(SVG, "svg");
  head.scope = "row";
  head.append(Object.assign(document.createElement("bdi"), { textContent: name }), svg);
  for (const [key, value] of Object.entries({ viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" })) {
    svg.setAttribute(key, value);
  }
  svg.append(rect("ground", 100), rect("bar", 0));
  made.append(head, Object.assign(document.createElement("td"), { className: "num n" }));
  return made;
}

function nobody() {
  const made = document.createElement("tr");
  made.append(Object.assign(document.createElement("td"), { colSpan: 2, className: "soft", textContent: "Nobody." }));
  return made;
}

// Rows are kept and only moved, so that a screen reader's place in the table stays.
function shares(table, counts) {
  const body = table.tBodies[0], known = new Map();
  for (const one of body.rows) known.set(one.querySelector("bdi")?.textContent, one);
  const ordered = Object.entries(counts).sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).slice(0, SHARES);
  const most = Math.max(...ordered.map(([, count]) => count), 1);
  const rows = ordered.map(([name, count]) => {
    const one = known.get(name) || row(name);
    one.querySelector(".bar").setAttribute("width", ((100 * count) / most).toFixed(1));
    one.lastElementChild.textContent = number.format(count);
    return one;
  });
  body.replaceChildren(...(rows.length ? rows : [nobody()]));
}

export function start(element) {
  const draw = line(document.getElementById("f-line"), 120);
  const show = (id, count) => { document.getElementById(id).textContent = number.format(count); };

  function tell(now) {
    show("f-now", now.viewerCount);
    show("f-most", now.maxConcurrent);
    show("f-attended", now.totalAttended);
    show("f-logins", now.totalLogin);
    draw(now.viewerCount);
    const parts = { session: now.sessions, country: now.countByViewingCountry, group: now.countByUserGroup };
    for (const table of element.querySelectorAll("[data-shares]")) shares(table, parts[table.dataset.shares]);
    for (const note of element.querySelectorAll("[data-more]")) {
      const more = Object.keys(parts[note.dataset.more]).length - SHARES;
      note.textContent = more > 0 ? `and ${more} more` : "";
    }
  }

  follow(element.dataset.from, tell, { say: sayIn(document.getElementById("f-state")), begin: draw.clear });
}
