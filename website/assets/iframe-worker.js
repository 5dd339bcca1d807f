// A page opened as a file may start no worker, and the search is one: its script then runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class {
    onmessage = null;

    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = data => this.onmessage?.(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = new URL(url, location.href).href;
      this.loaded = new Promise(done => (script.onload = done));
      inside.document.body.append(script);
    }

    postMessage(data) {
      const inside = this.frame.contentWindow;
      this.loaded.then(() => inside.onmessage?.(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
