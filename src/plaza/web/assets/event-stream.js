// Server-sent events that reconnect. A browser reconnects by itself when a stream breaks, but gives up when the response is
// not 200, for example while Valkey is unavailable. Then this module retries.

const RETRY_MS = 2000;

// Calls `onData` with each message, `onState` with a text about the connection, and `onStart` when the stream starts from the
// beginning. With `pauseWhenHidden` the stream is closed while the page is hidden: browsers allow few connections per host.
export function openStream(url, onData, { onState = () => {}, onStart = () => {}, pauseWhenHidden = false } = {}) {
  let stream = null, retryTimer = 0;

  function stop() {
    clearTimeout(retryTimer);
    stream?.close();
  }

  function start() {
    stop();
    if (pauseWhenHidden && document.visibilityState !== "visible") return;
    stream = new EventSource(url);
    onStart();
    stream.onopen = () => onState("updating live");
    stream.onmessage = (message) => onData(JSON.parse(message.data));
    stream.onerror = () => {
      onState("the server is not responding; retrying");
      if (stream.readyState === EventSource.CLOSED) retryTimer = setTimeout(start, RETRY_MS);
    };
  }

  if (pauseWhenHidden) document.addEventListener("visibilitychange", start);
  addEventListener("pagehide", stop);
  start();
}

// Returns a function that shows a text in `element`. Screen readers announce it only when it changes.
export function stateWriter(element) {
  let shown = "";
  return (text) => { if (text !== shown) element.textContent = shown = text; };
}
