// SPDX-License-Identifier: Apache-2.0
//
// Search in pages that were opened as files: browsers refuse a worker there, so the script of the
// worker runs in a hidden frame.  The theme would load such a script from the internet.
if (location.protocol === "file:") {
  window.Worker = class FrameWorker extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      this.isReady = false
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      const source = new URL(url, location.href).href
      this.frame.srcdoc =
        "<script>window.postMessage = data => parent.postMessage(data, '*')</" + "script>" +
        `<script src="${source}"></` + "script>"
      this.frame.addEventListener("load", () => {
        this.isReady = true
        this.waiting.splice(0).forEach(data => this.postMessage(data))
      })
      addEventListener("message", event => {
        if (event.source === this.frame.contentWindow) {
          event.stopImmediatePropagation()
          this.dispatchEvent(new MessageEvent("message", { data: event.data }))
        }
      })
      document.body.append(this.frame)
    }

    postMessage(data) {
      if (this.isReady) {
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
      } else {
        this.waiting.push(data)
      }
    }

    terminate() {
      this.frame.remove()
    }
  }
}
