// An event's page: the live viewer count, and a chart of the last minute. It is loaded again when the event starts or is moved.

import { lineChart, number } from "./chart.js";
import { openStream } from "./event-stream.js";

const CHART_SECONDS = 60;
// Of the pages that wait for the start, not all are loaded again in the same moment.
const SPREAD_MS = 5000;
// A stream begins with the last minute. If the event was moved in it, this is enough time to receive the present start.
const MOVED_MS = 2000;
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

export function start(section) {
  const addPoint = lineChart(document.getElementById("audience-chart"), CHART_SECONDS);
  const show = (id, count) => { document.getElementById(id).textContent = number.format(count); };

  let movedTimer = 0;
  function followStart(startsAt) {
    if (String(startsAt ?? "") === section.dataset.startsAt) {
      clearTimeout(movedTimer);
      movedTimer = 0;
    } else movedTimer ||= setTimeout(() => location.reload(), MOVED_MS + Math.random() * SPREAD_MS);
  }

  function update(counts) {
    followStart(counts.starts_at);
    show("watching", counts.watching);
    show("peak", counts.most);
    for (const [name, count] of Object.entries(counts.sessions)) {
      const id = CSS.escape(name);
      const text = document.querySelector(`[data-session="${id}"]`), meter = document.querySelector(`[data-meter="${id}"]`);
      if (text) text.textContent = number.format(count);
      if (meter) Object.assign(meter, { max: Math.max(counts.watching, 1), value: count });
    }
    addPoint(counts.watching);
  }

  const startsIn = Number(section.dataset.startsIn ?? Infinity) + Math.random() * SPREAD_MS;
  if (startsIn < MAX_TIMEOUT_MS) setTimeout(() => location.reload(), startsIn);
  openStream(section.dataset.from, update, { onStart: addPoint.clear, pauseWhenHidden: true });
}
