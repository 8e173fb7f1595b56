// An event's page: the count as it changes, and how it went in the last minute.

import { line, number } from "./chart.js";
import { follow } from "./follow.js";

export function start(stage) {
  stage.querySelector(".without").remove();
  stage.querySelector(".history").hidden = false;
  const draw = line(document.getElementById("line"), 60);
  const show = (id, count) => { document.getElementById(id).textContent = number.format(count); };

  function tell(now) {
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

  follow(stage.dataset.from, tell, { begin: draw.clear, resting: true });
}
