// Opens a page again that was briefly unavailable, as soon as it is available.

const RETRY_MS = 2000, MAX_RETRY_MS = 60_000;

export function start(element) {
  let retryMs = RETRY_MS;

  function retryLater() {
    setTimeout(retry, retryMs * (1 + Math.random()));
    retryMs = Math.min(2 * retryMs, MAX_RETRY_MS);
  }

  async function retry() {
    const { status } = await fetch(location, { method: "HEAD" }).catch(() => ({ status: 503 }));
    if (status === 503) retryLater();
    else location.reload();
  }

  element.textContent = "This page opens by itself as soon as it can.";
  retryLater();
}
