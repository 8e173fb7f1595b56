// Tells Plaza that somebody is watching this page.
//
//   <script src="https://plaza.example/live.js" data-event="E1" data-session="S1" data-location="web"></script>
//
// or, for a user who is logged in:   const stop = plazaLive.start({ event, location, session, token, groups });
//
// It beats only while the page is visible, as often as the server asks, says so when the page is left, and waits
// longer and longer while the server cannot answer. Without a token it asks for one of a viewer without an account,
// and keeps it in this browser, so that a visitor who comes back is the same viewer.
(() => {
  "use strict";

  const own = document.currentScript;
  const base = own ? new URL(own.src).origin : location.origin;
  const KEPT = "plaza-viewer";
  const FIRST_WAIT_MS = 1000;
  const LONGEST_WAIT_MS = 5 * 60 * 1000;

  const kept = {
    read() {
      try {
        const found = JSON.parse(localStorage.getItem(KEPT));
        return found && found.until > Date.now() ? found.token : null;
      } catch {
        return null; // no storage here, or not ours
      }
    },
    write(token, seconds) {
      try {
        localStorage.setItem(KEPT, JSON.stringify({ token, until: Date.now() + seconds * 1000 }));
      } catch {
        // A browser that keeps nothing gets a new token on every page.
      }
    },
    drop() {
      try {
        localStorage.removeItem(KEPT);
      } catch {
        // Nothing was kept.
      }
    },
  };

  class Failed extends Error {
    constructor(status, retryAfter) {
      super(`status ${status}`);
      this.status = status;
      this.retryMs = Number(retryAfter) * 1000 || 0;
    }
  }

  async function post(path, token, body, keepalive) {
    const headers = { "content-type": "application/json" };
    if (token) headers.authorization = `Bearer ${token}`;
    const answer = await fetch(base + path, { method: "POST", headers, keepalive, body: JSON.stringify(body) });
    if (!answer.ok) throw new Failed(answer.status, answer.headers.get("retry-after"));
    return answer.json();
  }

  function start(options) {
    const { event, location: place = "web", session = null, groups, token: given } = options;
    const at = `/analytics/events/${encodeURIComponent(event)}`;
    const where = session ? { location: place, session_id: session } : { location: place };
    let token = given || kept.read();
    let timer = null;
    let failures = 0;
    let there = false; // whether the server may count us
    let busy = false;
    let stopped = false;

    async function ensureToken() {
      if (token) return;
      const issued = await post("/analytics/viewer-token", null, {});
      token = issued.token;
      kept.write(token, issued.expires_in);
    }

    function next(ms) {
      clearTimeout(timer);
      timer = stopped ? null : setTimeout(beat, ms);
    }

    async function beat() {
      if (stopped || busy || document.visibilityState !== "visible") return;
      busy = true;
      try {
        await ensureToken();
        there = true; // the answer may be lost, the beat not
        const heard = await post(`${at}/heartbeat`, token, groups ? { ...where, groups } : where);
        failures = 0;
        document.dispatchEvent(new CustomEvent("plaza-live", { detail: heard }));
        // A little early, and never all at the same moment.
        next(heard.next_heartbeat_ms * (0.9 + Math.random() * 0.1));
      } catch (error) {
        afterFailure(error);
      } finally {
        busy = false;
      }
    }

    function afterFailure(error) {
      const { status } = error;
      if (status === 401 && !given) {
        token = null;
        kept.drop();
      } else if (status >= 400 && status < 500 && status !== 408 && status !== 429) {
        stopped = true; // asking again would not help
        return;
      }
      const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** failures++);
      next(Math.max(error.retryMs || 0, wait * (0.5 + Math.random() / 2)));
    }

    function leave() {
      if (!there || !token) return;
      there = false;
      post(`${at}/leave`, token, where, true).catch(() => {}); // the page is going; nobody could try again
    }

    function onVisibility() {
      if (document.visibilityState === "visible") next(0);
      else clearTimeout(timer);
    }

    function onHide() {
      clearTimeout(timer);
      leave();
    }

    function onShow(shown) {
      if (shown.persisted) next(0); // back from the browser's page cache
    }

    document.addEventListener("visibilitychange", onVisibility);
    addEventListener("pagehide", onHide);
    addEventListener("pageshow", onShow);
    next(0);

    return function stop() {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisibility);
      removeEventListener("pagehide", onHide);
      removeEventListener("pageshow", onShow);
      leave();
    };
  }

  window.plazaLive = { start };
  const said = own ? own.dataset : {};
  if (said.event) start({ event: said.event, session: said.session, location: said.location, token: said.token });
})();
