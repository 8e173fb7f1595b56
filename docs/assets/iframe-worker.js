// Lets the search of the documentation site work from file://, where browsers refuse to start a Worker.
// The theme would load such a script from a CDN. This one runs the worker's script in a hidden iframe.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.frame = frame;
      const scope = frame.contentWindow;
      scope.document.open();
      scope.document.write(`<script>
        window.postMessage = data => parent.postMessage(data, "*");
        window.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {
          const script = document.createElement("script");
          script.src = url;
          script.onload = done;
          script.onerror = failed;
          document.body.appendChild(script);
        })), Promise.resolve());
      <\/script><body><script src="${url}"><\/script></body>`);
      scope.document.close();
      this.loaded = new Promise(done => { scope.onload = done; });
      window.addEventListener("message", event => {
        if (event.source !== scope) return;
        const message = new MessageEvent("message", {data: event.data});
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      });
    }
    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", {data})));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
