// The start: everything is there already, as after the last step; now it can be used.

function listenToTheme() {
  const theme = document.getElementById("theme");
  theme.addEventListener("change", () => {
    if (theme.value) document.documentElement.dataset.theme = theme.value;
    else delete document.documentElement.dataset.theme;
  });
}

document.documentElement.classList.add("scripted");
listenToTheme();
listenToMaps();
makeSteps();
listenToPods();
showStep(lastStep);
makeDifferences();
document.documentElement.dataset.ready = "yes";
performance.mark("interactive");
