"use strict";

// Sliders of instants: show the instant while a person slides, and send the form when the slider is
// let go. A keyboard changes a slider step by step, so then Enter or the button sends the form.
for (const form of document.querySelectorAll("form.sliders")) {
  let pulled = false;
  for (const slider of form.querySelectorAll("input[type=range]")) {
    const shown = form.querySelector(`output[for="${slider.id}"]`);
    slider.addEventListener("pointerdown", () => { pulled = true; });
    slider.addEventListener("input", () => {
      const at = new Date(Number(slider.value) * 1000).toISOString();
      const text = slider.value === slider.max ? "now" : at.slice(0, 19).replace("T", " ");
      shown.textContent = text;
      slider.setAttribute("aria-valuetext", text);
    });
    slider.addEventListener("change", () => {
      if (pulled) {
        form.requestSubmit();
      }
      pulled = false;
    });
    slider.addEventListener("keydown", () => { pulled = false; });
  }
}
