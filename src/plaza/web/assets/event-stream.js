// Server-sent events that reconnect. A browser reconnects by itself when a stream breaks, but gives up when the response is
// not 200, for example while Valkey is unavailable. Then this module retries.

const RETRY_MS = 2000, MAX_RETRY_MS = 60_000;

// `url` is the address, or a function that returns it. Calls `onData` with each message and its id, `onState` with a text about the connection, and `onStart` when the stream starts from the
// beginning. With `pauseWhenHidden` the stream is closed while the page is hidden: browsers allow few connections per host.
// Returns a function that connects again.
export function openStream(url, onData, { onState = () => {}, onStart = () => {}, pauseWhenHidden = false } = {}) {
  let stream = null, retryTimer = 0, retryMs = RETRY_MS;

  function stop() {
    clearTimeout(retryTimer);
    stream?.close();
  }

  function start() {
    stop();
    if (pauseWhenHidden && document.visibilityState !== "visible") return;
    stream = new EventSource(typeof url === "function" ? url() : url);
    onStart();
    stream.onopen = () => { retryMs = RETRY_MS; onState("updating live"); };
    stream.onmessage = (message) => onData(JSON.parse(message.data), message.lastEventId);
    stream.onerror = () => {
      onState("the server is not responding; retrying");
      if (stream.readyState !== EventSource.CLOSED) return;
      stopIfRefused(stream.url);
      retryTimer = setTimeout(start, retryMs * (1 + Math.random()));
      retryMs = Math.min(2 * retryMs, MAX_RETRY_MS);
    };
  }

  // A browser does not tell scripts why a stream was refused.
  async function stopIfRefused(address) {
    const request = new AbortController();
    const { status } = await fetch(address, { signal: request.signal }).catch(() => ({}));
    request.abort(); // it may be a stream
    if (status !== 401 && status !== 403) return;
    stop();
    onState(status === 401 ? "not updated: you are signed out" : "not updated: you may not see this page any more");
  }

  if (pauseWhenHidden) document.addEventListener("visibilitychange", start);
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted) start(); });
  start();
  return start;
}

// Returns a function that shows a text in `element`. Screen readers announce it only when it changes.
export function stateWriter(element) {
  let shown = "";
  return (text) => { if (text !== shown) element.textContent = shown = text; };
}
