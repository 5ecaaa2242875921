"use strict";
for (const text of document.querySelectorAll("pre")) {
  const button = document.createElement("button");
  const say = word => {
    button.textContent = word;
    button.setAttribute("aria-label", `${word}: ${text.getAttribute("aria-label")}`);
  };
  button.className = "copy";
  say("Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      say("Copied");
    } catch { // No clipboard without TLS or a loopback address.
      getSelection().selectAllChildren(text);
      say(document.execCommand("copy") ? "Copied" : "Selected");
    }
  });
  text.before(button);
}
