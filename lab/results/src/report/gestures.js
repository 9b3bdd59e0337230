// Wheel, drag and pinch on a drawing. A mouse drags a range; a finger, or Shift and a mouse, moves a zoomed drawing. Scrolling the page over a drawing still scrolls the page.

class Gestures {
  constructor(view) {
    this.view = view;
    /** Where each pointer is that is down. */
    this.down = new Map();
    this.moved = false;
    const plot = view.plot;
    plot.addEventListener("wheel", event => this.wheel(event), { passive: false });
    plot.addEventListener("pointerdown", event => this.press(event));
    plot.addEventListener("pointermove", event => this.move(event));
    for (const name of ["pointerup", "pointercancel", "pointerleave"]) {
      plot.addEventListener(name, event => this.end(event));
    }
  }

  place(x) {
    return x - this.view.svg.getBoundingClientRect().left;
  }

  wheel(event) {
    const { view } = this;
    const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (sideways) {
      if (view.isWhole()) return;
      view.shift((event.deltaX || event.deltaY) / view.width);
    } else {
      // There is nothing more to see: the page scrolls.
      if (event.deltaY > 0 && view.isWhole()) return;
      view.zoomAt(Math.pow(1.0015, Math.max(-400, Math.min(400, event.deltaY))), view.at(this.place(event.clientX)));
    }
    event.preventDefault();
    hideTip();
  }

  inside(event) {
    return Math.max(PLOT.left, Math.min(this.view.width - PLOT.right, this.place(event.clientX)));
  }

  end(event) {
    if (this.down.delete(event.pointerId) && this.moved && this.begin >= 0) this.view.range.tell();
  }

  press(event) {
    if (!this.down.size) this.moved = false;
    const { view } = this;
    this.begin = event.pointerType === "mouse" && !event.shiftKey && event.button === 0 ? view.momentAt(this.inside(event)) : -1;
    if (this.begin >= 0) view.plot.setPointerCapture(event.pointerId);
    this.down.set(event.pointerId, event.clientX);
  }

  move(event) {
    const { view, down } = this;
    if (!down.has(event.pointerId)) return;
    const before = down.get(event.pointerId), now = event.clientX;
    if (down.size === 1) {
      if (!this.moved && Math.abs(now - before) < 4) return;
      if (this.begin >= 0) view.range.set(this.begin, view.momentAt(this.inside(event)));
      else if (!view.isWhole()) view.shift((before - now) / view.width);
    } else {
      const [a, b] = [...down.entries()].map(([id, x]) => [x, id === event.pointerId ? now : x]);
      const wide = (i) => Math.max(12, Math.abs(a[i] - b[i]));
      view.zoomAt(wide(0) / wide(1), view.at(this.place((a[1] + b[1]) / 2)));
    }
    this.moved = true;
    down.set(event.pointerId, now);
    hideTip();
  }
}
