// An event's page: the count as it changes, and how it went in the last minute.

const KEPT = 60;

function draw(line, past) {
  const most = Math.max(...past, 1), step = 600 / (KEPT - 1), from = KEPT - past.length;
  const points = past.map((n, i) => `${((from + i) * step).toFixed(1)} ${(116 - (n / most) * 108).toFixed(1)}`);
  const path = `M${points.join("L")}`;
  line.querySelector(".over").setAttribute("d", path);
  line.querySelector(".under").setAttribute("d", `${path}L600 120L${(from * step).toFixed(1)} 120Z`);
}

export function start(stage) {
  stage.querySelector(".without").remove();
  const number = new Intl.NumberFormat("en"), past = [];
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
    past.push(now.watching);
    if (past.length > KEPT) past.shift();
    draw(document.getElementById("line"), past);
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
