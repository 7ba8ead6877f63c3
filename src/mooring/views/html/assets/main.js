// The start: everything is there already, as after the last step; now it can be used.

document.documentElement.classList.add("scripted");
listenToTheme();
listenToMaps();
makeSteps();
listenToPods();
showStep(lastStep);
makeDifferences();
document.documentElement.dataset.ready = "yes";
performance.mark("interactive");
