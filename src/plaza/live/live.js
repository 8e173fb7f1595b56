// Tells Plaza that somebody is watching this page.
//
//   <script src="https://plaza.example/live.js" data-event="E1" data-session="S1" data-location="web"></script>
//
// or, for a user who is logged in:   const stop = plazaLive.start({ event, location, session, token, groups });
// where `token` is a token, or a function that gets one: it is asked again when the last has expired.
//
// It beats only while the page is visible, as often as the server asks, says so when the page is left, and waits
// longer and longer while the server cannot answer. Without a token it asks for one of a viewer without an account,
// and keeps it in this browser, so that a visitor who comes back is the same viewer. Tabs that watch the same know of
// each other: only the last one to go says so.
(() => {
  "use strict";

  const own = document.currentScript;
  const base = own ? new URL(own.src).origin : location.origin;
  const KEPT = "plaza-viewer";
  const FIRST_WAIT_MS = 1000;
  const LONGEST_WAIT_MS = 5 * 60 * 1000;
  const GRACE_MS = 5000;
  const ASKING_MS = 30 * 1000; // what an answer may take

  // What this browser keeps for us. One that keeps nothing gets a new token on every page.
  const storage = {
    read(name) {
      try {
        return JSON.parse(localStorage.getItem(name)) || {};
      } catch {
        return {}; // no storage here, or not ours
      }
    },
    write(name, value) {
      try {
        localStorage.setItem(name, JSON.stringify(value));
      } catch {
        // It will not be remembered.
      }
    },
  };

  function keptToken() {
    const { token, until } = storage.read(KEPT);
    return until > Date.now() ? token : null;
  }

  // The tabs of this browser that watch at one place, and until when each has said that it does.
  function tabsAt(place) {
    const name = `plaza-watching ${place}`;
    const mine = Math.random().toString(36).slice(2);
    const others = () =>
      Object.entries(storage.read(name)).filter(([tab, until]) => tab !== mine && until > Date.now());
    return {
      stay(ms) {
        storage.write(name, Object.fromEntries([...others(), [mine, Date.now() + ms]]));
      },
      // Answers whether this was the last one.
      go() {
        const left = others();
        storage.write(name, Object.fromEntries(left));
        return left.length === 0;
      },
    };
  }

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
    const at = `/analytics/events/${encodeURIComponent(event).replace(/^~*\.{1,2}$/, "~$&")}`; // browsers climb at dots
    const where = session ? { location: place, session_id: session } : { location: place };
    const tabs = tabsAt(JSON.stringify([event, session, place]));
    const asks = typeof given === "function";
    let token = asks ? null : given || keptToken();
    let timer = null;
    let failures = 0;
    let there = false; // whether the server may count us
    let busy = false;
    let stopped = false;

    async function ensureToken() {
      if (token) return;
      if (asks) {
        token = await given();
        return;
      }
      const issued = await post("/analytics/viewer-token", null, {});
      token = issued.token;
      storage.write(KEPT, { token, until: Date.now() + issued.expires_in * 1000 });
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
        if (stopped) return;
        there = true; // the answer may be lost, the beat not
        tabs.stay(ASKING_MS); // a tab that closes while we ask is not the last one
        const heard = await post(`${at}/heartbeat`, token, groups ? { ...where, groups } : where);
        failures = 0;
        tabs.stay(heard.next_heartbeat_ms + GRACE_MS);
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
      if (status === 401 && (asks || !given)) {
        token = null;
        if (!asks) storage.write(KEPT, {});
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
      if (!tabs.go()) return;
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
