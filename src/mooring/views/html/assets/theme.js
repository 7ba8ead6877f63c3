// Light and dark as the reader chooses.

function listenToTheme() {
  const theme = document.getElementById("theme");
  theme.addEventListener("change", () => {
    if (theme.value) document.documentElement.dataset.theme = theme.value;
    else delete document.documentElement.dataset.theme;
  });
}
