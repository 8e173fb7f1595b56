// An event's page: the count as it changes, and how it went in the last minute.

import { line, number } from "./chart.js";

export function start(stage) {
  stage.querySelector(".without").remove();
  stage.querySelector(".history").hidden = false;
  const draw = line(document.getElementById("line"), 60);
  const show = (id, count) => { document.getElementById(id).textContent = number.format(count); };

  function tell(message) {
    const now = JSON.parse(message.data);
    show("watching", now.watching);
    show("most", now.most);
    for (const [name, count] of Object.entries(now.sessions)) {
      const at = CSS.escape(name);
      const text = document.querySelector(`[data-session="${at}"]`), meter = document.querySelector(`[data-meter="${at}"]`);
      if (text) text.textContent = number.format(count);
      if (meter) Object.assign(meter, { max: Math.max(now.watching, 1), value: count });
    }
    draw(now.watching);
  }

  // Browsers keep few connections to one place: a page that nobody looks at gives its own back.
  let stream = null;
  function follow() {
    stream?.close();
    stream = document.visibilityState === "visible" ? new EventSource(stage.dataset.from) : null;
    if (stream) stream.onmessage = tell;
  }

  document.addEventListener("visibilitychange", follow);
  addEventListener("pagehide", () => stream?.close());
  follow();
}
