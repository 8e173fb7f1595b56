// Sends heartbeats to Plaza while this page is visible.
//
//   <script src="https://plaza.example/live.js" data-event="E1" data-session="S1" data-location="web"></script>
//
// or, for a signed-in user:   const stop = plazaLive.start({ event, location, session, token, groups });
// `token` is a token, or a function that returns one; it is called again when the token has expired. `quality` is a function
// that returns what the player measured since its last call, or null. With `sources` (`data-sources`) the device and the
// referring site are sent too.
//
// The server sets the interval. When the page is closed, the script leaves. While the server does not respond, it backs
// off. Without a token it requests a viewer token and stores it in this browser, so that a returning visitor is the same
// viewer. Tabs at the same place know each other: only the last one to close leaves.
(() => {
  "use strict";

  const own = document.currentScript;
  const base = own ? own.src.replace(/\/live\.js(?:[?#].*)?$/, "") : location.origin;
  const TOKEN_KEY = "plaza-viewer";
  const MIN_BACKOFF_MS = 1000;
  const MAX_BACKOFF_MS = 5 * 60 * 1000;
  const GRACE_MS = 5000;
  const RESPONSE_MS = 30 * 1000; // how long a response may take

  // The browser's storage. Without one, every page gets a new token.
  const storage = {
    read(name) {
      try {
        return JSON.parse(localStorage.getItem(name)) || {};
      } catch {
        return {}; // no storage, or no valid JSON
      }
    },
    write(name, value) {
      try {
        localStorage.setItem(name, JSON.stringify(value));
      } catch {
        // Without storage the value is lost.
      }
    },
  };

  function storedToken() {
    const { token, until } = storage.read(TOKEN_KEY);
    return until > Date.now() ? token : null;
  }

  // The tabs of this browser at one place, each with the time until which it is there.
  function tabsAt(place) {
    const name = `plaza-watching ${place}`;
    const mine = Math.random().toString(36).slice(2);
    const others = () =>
      Object.entries(storage.read(name)).filter(([tab, until]) => tab !== mine && until > Date.now());
    return {
      stay(ms) {
        storage.write(name, Object.fromEntries([...others(), [mine, Date.now() + ms]]));
      },
      // Returns whether this was the last tab.
      go() {
        const left = others();
        storage.write(name, Object.fromEntries(left));
        return left.length === 0;
      },
    };
  }

  // The device and the site that led here. The server counts them if it is set to.
  function sourceOfVisit() {
    const side = Math.min(screen.width, screen.height);
    const device = !matchMedia("(pointer: coarse)").matches ? "desktop" : side < 600 ? "phone" : "tablet";
    const host = document.referrer && new URL(document.referrer).host;
    return host && host !== location.host && host.length <= 100 ? { device, referrer: host } : { device };
  }

  class RequestFailed extends Error {
    constructor(status, retryAfter) {
      super(`status ${status}`);
      this.status = status;
      this.retryMs = Number(retryAfter) * 1000 || 0;
    }
  }

  async function post(path, token, body, keepalive) {
    const headers = { "content-type": "application/json" };
    if (token) headers.authorization = `Bearer ${token}`;
    const response = await fetch(base + path, { method: "POST", headers, keepalive, body: JSON.stringify(body) });
    if (!response.ok) throw new RequestFailed(response.status, response.headers.get("retry-after"));
    return response.json();
  }

  function start(options) {
    const { event, location: place = "web", session = null, groups, token: given, quality, sources } = options;
    const at = `/analytics/events/${encodeURIComponent(event).replace(/^~*\.{1,2}$/, "~$&")}`; // browsers resolve dot segments
    const where = session ? { location: place, session_id: session } : { location: place };
    const tabs = tabsAt(JSON.stringify([event, session, place]));
    const hasTokenFunction = typeof given === "function";
    let token = hasTokenFunction ? null : given || storedToken();
    let timer = null;
    let failures = 0;
    let counted = false; // whether the server may count this tab
    let busy = false;
    let stopped = false;
    let reports = true; // whether heartbeats carry a report

    function report() {
      let measured = null;
      try {
        measured = quality && quality();
      } catch (error) {
        reportError(error); // a fault in the player must not cost the viewer
      }
      return { ...(measured && { quality: measured }), ...(sources && sourceOfVisit()) };
    }

    async function ensureToken() {
      if (token) return;
      if (hasTokenFunction) {
        token = await given();
        return;
      }
      const issued = await post("/analytics/viewer-token", null, {});
      token = issued.token;
      storage.write(TOKEN_KEY, { token, until: Date.now() + issued.expires_in * 1000 });
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
        counted = true; // the heartbeat may arrive although the response is lost
        tabs.stay(RESPONSE_MS); // until the response, this tab counts as present
        const result = await post(`${at}/heartbeat`, token, {
          ...where,
          ...(groups && { groups }),
          ...(reports && report()),
        });
        failures = 0;
        tabs.stay(result.next_heartbeat_ms + GRACE_MS);
        document.dispatchEvent(new CustomEvent("plaza-live", { detail: result }));
        // Slightly early, and not all viewers at the same time.
        next(result.next_heartbeat_ms * (0.9 + Math.random() * 0.1));
      } catch (error) {
        afterFailure(error);
      } finally {
        busy = false;
      }
    }

    function afterFailure(error) {
      const { status } = error;
      if (status === 401 && (hasTokenFunction || !given)) {
        token = null;
        if (!hasTokenFunction) storage.write(TOKEN_KEY, {});
      } else if (status === 422 && reports) {
        reports = false; // what they carried may be invalid
      } else if (status >= 400 && status < 500 && status !== 408 && status !== 429) {
        stopped = true; // a retry cannot help
        return;
      }
      const wait = Math.min(MAX_BACKOFF_MS, MIN_BACKOFF_MS * 2 ** failures++);
      next(Math.max(error.retryMs || 0, wait * (0.5 + Math.random() / 2)));
    }

    function leave() {
      if (!counted || !token) return;
      counted = false;
      if (!tabs.go()) return;
      post(`${at}/leave`, token, where, true).catch(() => {}); // the page is closing, so there is no retry
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
      if (shown.persisted) next(0); // restored from the browser's page cache
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
  const options = own ? own.dataset : {};
  if (options.event) {
    const { event, session, location, token, sources } = options;
    start({ event, session, location, token, sources: sources !== undefined });
  }
})();
