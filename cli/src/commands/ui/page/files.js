// Files that are dropped on the page: they go to the page's own server, and nowhere else.

class Files {
  constructor(settings, onProblem) {
    this.settings = settings;
    this.onProblem = onProblem;
    const drop = byId("drop"), input = byId("file");
    input.addEventListener("change", () => { if (input.files[0]) this.send(input.files[0]); });
    for (const kind of ["dragover", "dragleave", "drop"]) {
      addEventListener(kind, event => {
        event.preventDefault();
        drop.classList.toggle("over", kind === "dragover");
        if (kind === "drop" && event.dataTransfer.files[0]) this.send(event.dataTransfer.files[0]);
      });
    }
  }

  async send(file) {
    const name = file.name.replace(/[^A-Za-z0-9._-]/g, "_");
    try {
      const response = await fetch("file?name=" + encodeURIComponent(name), {
        method: "POST", body: file, headers: { "X-Vramlab-Token": token, "Content-Type": "application/octet-stream" },
      });
      const kept = await response.json();
      if (kept.error) this.onProblem(`${file.name}: ${kept.error}`);
      else this.settings.set("model-file", kept.file);
    } catch (problem) {
      this.onProblem(`${file.name}: ${problem.message}`);
    }
  }
}
