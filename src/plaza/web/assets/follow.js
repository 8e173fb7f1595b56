// Server-sent events that go on. A browser asks again by itself when a stream breaks off, but gives up for good when the
// answer is not 200, as it is while Valkey is away: then we ask.

const AGAIN_MS = 2000;

// `tell` hears what comes, `say` whether it is of now, and `begin` that it comes from the beginning. With `resting` nothing
// is followed while nobody looks: browsers keep few connections to one place.
export function follow(from, tell, { say = () => {}, begin = () => {}, resting = false } = {}) {
  let stream = null, again = 0;

  function stop() {
    clearTimeout(again);
    stream?.close();
  }

  function start() {
    stop();
    if (resting && document.visibilityState !== "visible") return;
    stream = new EventSource(from);
    begin();
    stream.onopen = () => say("moving as it happens");
    stream.onmessage = (message) => tell(JSON.parse(message.data));
    stream.onerror = () => {
      say("the server does not answer; trying again");
      if (stream.readyState === EventSource.CLOSED) again = setTimeout(start, AGAIN_MS);
    };
  }

  if (resting) document.addEventListener("visibilitychange", start);
  addEventListener("pagehide", stop);
  start();
}

// Writes a line of state, which is read out once, when it changes.
export function sayIn(element) {
  let shown = "";
  return (text) => { if (text !== shown) element.textContent = shown = text; };
}
