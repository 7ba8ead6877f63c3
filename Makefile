# Two targets are for everybody: `make demo` and `make test`. Both make their own environment in .venv, without root.
# The others are for people who work on Mooring; CONTRIBUTING.md says when.

PYTHON ?= python3.11
# The first that runs: a name on the path can be a stub.
PYTHON_FOUND := $(shell for name in $(PYTHON) python3; do $$name -c '' 2>/dev/null && echo $$name && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Three on two cores: some tests wait for the programs that they start.
WORKERS ?= 3

.PHONY: help demo test test-recordings test-laws test-long world fuzz fuzz-inputs sweep test-browser e2e e2e-crio e2e-size e2e-faults e2e-numa e2e-resize e2e-systemd e2e-kubelet e2e-shadow e2e-kube e2e-image e2e-chart observability image soak audit test-pythons check lint types walls docs-links specification releases-page budget docs deploy site pictures bench mutants mutants-releases lock clean
.PHONY: wheel sdist dist reproducible onefile krew sbom licences compatibility freeze notes chart checksums sign push release

help:
	@echo "make demo          plan the example pods on a shipped machine and draw the node (demo/node.svg)"
	@echo "make test          run the tests: of recordings a share, of property tests the first examples"
	@echo "make test-recordings  replay every recording"
	@echo "make test-laws     run the property tests with all their examples"
	@echo "make test-long     run the tests that start programs, wait for them, or take long"
	@echo "make fuzz          run the property tests with other seeds for MINUTES (5), from SEED on; say how to repeat a failure"
	@echo "make world         live LIVES (200) lives of the whole agent, or WORLD=cluster, claims, devices or wire, in virtual time, from SEED (1) on, with faults at every call"
	@echo "make fuzz-inputs   feed every reader of outside bytes with RUNS (100000) inputs that coverage guides (atheris: CPython 3.11 to 3.13 on glibc)"
	@echo "make sweep         put escapes, markup and shell code into every field of every input, for every verb and output (hours)"
	@echo "make test-browser  run the tests of the HTML report in headless Chromium"
	@echo "make e2e           run the tests of the node agent against real containerd (root on Debian)"
	@echo "make e2e-crio      the same against real CRI-O, from built parts beside the repository (root on Debian)"
	@echo "make e2e-size      kill agent and runtime beside many containers; thousands of container lifecycles: KILLS, RESTARTS, CONTAINERS, SHARING, SEED, LIVES; RUNTIMES (debian built crio)"
	@echo "make e2e-faults    break the connection of agent and runtime at every frame and in every way (an hour or more)"
	@echo "make e2e-numa      boot guests with 64 CPUs and 8 NUMA nodes in QEMU: control groups, then the agent with containerd and runc"
	@echo "make e2e-resize    resize pods in guests with 16 CPUs: the cases of KEP-6122, and a program that follows its CPUs"
	@echo "make e2e-systemd   the agent in guests with systemd and cgroup v2: containerd and CRI-O, each with runc and crun"
	@echo "make e2e-kubelet   run kubelet, API server and agent against each other on machines that are played (root on Debian, Go)"
	@echo "make e2e-shadow    hold each decision of real kubelets against the engine: PODS, TOPOLOGIES, KUBELETS, SEED"
	@echo "make e2e-kube      let the real scheduler and the extender place pods on nodes whose kubelets are the engine (Go)"
	@echo "make image         build the container image: build/image/mooring.tar, an OCI archive (buildah; BASE, SUITE, ARCH, IMAGE)"
	@echo "make e2e-image     run that image on a real containerd, and build it twice (root on Debian)"
	@echo "make e2e-chart     install, upgrade, roll back and uninstall the Helm chart on a real cluster of one node (root on Debian, Go)"
	@echo "make observability check the rules and dashboards of deploy/observability with promtool and Prometheus (Go)"
	@echo "make check         static checks: ruff, mypy --strict, import-linter, links of the docs, citations of the specification, the page of releases, the budget of the house"
	@echo "make soak          100,000 container lifecycles through real frames, with the agent as a process (half an hour)"
	@echo "make test-pythons  run the tests on every Python 3.11 to 3.13 that is found"
	@echo "make bench         run the benchmarks"
	@echo "make docs          write into the docs what their examples print now"
	@echo "make deploy        write the manifests of deploy from the chart (Go, for Helm)"
	@echo "make site          build the documentation as a site (build/site/index.html)"
	@echo "make pictures      draw the pictures of the docs again"
	@echo "make clean         remove everything that the others made, but parts and guests in the user's cache folder"
	@echo "make mutants       mutation testing of the managers (about 10 minutes)"
	@echo "make mutants-releases  count the recordings that notice each rule of an older kubelet (about 10 minutes)"
	@echo "make wheel         build the wheel into dist; make dist builds the source distribution too"
	@echo "make reproducible  build both in three folders, and compare the bytes"
	@echo "make onefile       build one executable with its own interpreter into dist, and try it"
	@echo "make krew          build the archive of the kubectl plugin and its manifest for krew"
	@echo "make release       build everything that a release publishes; make notes prints its notes"
	@echo "make sbom          list what is installed with Mooring as CycloneDX; make licences as a table with licences"
	@echo "make lock          pin the newest allowed dependencies"

$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON_FOUND)" || { echo "no Python was found: install Python 3.11 or later, or run make with PYTHON=..."; exit 1; }
	$(PYTHON_FOUND) scripts/check_python.py
	$(PYTHON_FOUND) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/mooring demo --to demo

# Workers and the programs that tests start compile nothing twice, even where the environment forbids bytecode.
test test-recordings test-laws test-long: export PYTHONDONTWRITEBYTECODE =
IN_WORKERS = $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal
test: $(STAMP)
	$(IN_WORKERS)

# What make test leaves out. tests/planner/recordings.py says which share of the recordings it takes, tests/conftest.py
# which of the examples.
test-recordings: $(STAMP)
	MOORING_RECORDINGS=whole $(IN_WORKERS) -m corpus

test-laws: $(STAMP)
	$(IN_WORKERS) -m hypothesis --hypothesis-profile=mooring

test-long: $(STAMP)
	$(IN_WORKERS) -m long

# make test draws the same examples on every machine; this draws others. TESTS narrows it to files or folders.
MINUTES ?= 5
SEED ?=
TESTS ?= tests
fuzz: $(STAMP)
	$(BIN)/python scripts/fuzz.py --minutes $(MINUTES) --workers $(WORKERS) $(if $(SEED),--seed $(SEED)) $(FUZZ) $(TESTS)

# The whole agent, or with WORLD=cluster extenders and publishers, with WORLD=claims agent and driver of claims, in virtual
# time: LIVES (200) from SEED (1) on, with faults at every call; a broken law is printed with its smallest life, which STEPS
# and WITHOUT repeat. DEFECT puts a defect of tests/world/defects.py back in.
world: $(STAMP)
	$(BIN)/python -m tests.world --world $(or $(WORLD),node) --lives $(or $(LIVES),200) --seed $(or $(SEED),1) --steps $(or $(STEPS),0) \
	  --without "$(WITHOUT)" --defect "$(DEFECT)" $(if $(WITHOUT)$(DEFECT),,--shrink)

# The fuzzer is no part of the locked environment: it has wheels for few platforms. DRAWN=1 does without: inputs by chance
# from that seed, and many more of them in the same time.
RUNS ?= 100000
fuzz-inputs: $(STAMP)
	$(if $(DRAWN),,$(BIN)/python -c "import atheris" 2>/dev/null || $(BIN)/pip install --quiet atheris)
	$(BIN)/python scripts/fuzz_inputs.py --runs $(RUNS) $(if $(DRAWN),--drawn --seed $(DRAWN)) $(READERS)

sweep: $(STAMP)
	MOORING_SWEEP=$(or $(SAMPLE),whole) $(BIN)/python -m pytest -q -p no:cacheprovider tests/inputs/test_inputs_hostile_texts.py

# Skips itself, by name and reason, where there is no Chromium and none can be installed.
test-browser: $(STAMP)
	$(BIN)/python scripts/test_browser.py

# Fetches and builds real parts once, into the user's cache folder. What a machine cannot have is skipped by name and
# reason; a part that is there and does not build or start fails.
e2e: $(STAMP)
	$(BIN)/python scripts/e2e_parts.py
	$(BIN)/python -m pytest -q -p no:xdist tests/e2e/containerd

# Skipped by name where ../shared/parts (or the folder that MOORING_E2E_CRIO names) has no CRI-O.
e2e-crio: $(STAMP)
	MOORING_E2E_RUNTIMES=crio $(BIN)/python -m pytest -q -p no:xdist -rfEs tests/e2e/containerd tests/e2e/crio

# The size by default takes a minute. All of it, some hours on two cores: KILLS=200 RESTARTS=50 CONTAINERS=500 LIVES=10000
e2e-size: export MOORING_E2E_KILLS = $(or $(KILLS),4)
e2e-size: export MOORING_E2E_RESTARTS = $(or $(RESTARTS),2)
e2e-size: export MOORING_E2E_CONTAINERS = $(or $(CONTAINERS),40)
e2e-size: export MOORING_E2E_LIVES = $(or $(LIVES),200)
e2e-size: export MOORING_E2E_SHARING = $(SHARING)
e2e-size: export MOORING_E2E_SEED = $(or $(SEED),1)
e2e-size: export MOORING_E2E_SIZE_RUNTIMES = $(or $(RUNTIMES),debian crio)
e2e-size: $(STAMP)
	$(BIN)/python scripts/e2e_parts.py
	$(BIN)/python -m pytest -q -p no:xdist -rfEs --log-cli-level=INFO tests/e2e/size

# The other tiers take some frames; here are all of them on both containerds, and many lives on a played runtime.
e2e-faults: $(STAMP)
	$(BIN)/python -m tests.world --world wire --lives $(or $(LIVES),200)
	$(BIN)/python scripts/e2e_parts.py
	MOORING_E2E_FAULTS=all $(BIN)/python -m pytest -q -p no:xdist tests/e2e/containerd/test_agent_faults.py

# One guest, emulated: it needs no KVM and no rights but those to install QEMU where it is missing.
e2e-numa: $(STAMP)
	$(BIN)/python scripts/e2e_guest.py
	MOORING_E2E_NUMA=$${MOORING_E2E_NUMA:-1} $(BIN)/python -m pytest -q -p no:xdist -rA tests/e2e/guest \
	  --ignore tests/e2e/guest/test_e2e_guest_resize.py --ignore tests/e2e/guest/test_e2e_guest_systemd.py

# Two smaller guests. MOORING_E2E_NUMA=full resizes a hundred times under churn.
e2e-resize: $(STAMP)
	$(BIN)/python scripts/e2e_guest.py
	MOORING_E2E_NUMA=$${MOORING_E2E_NUMA:-1} $(BIN)/python -m pytest -q -p no:xdist -rA tests/e2e/guest/test_e2e_guest_resize.py

# Two guests of 16 CPUs, MOORING_E2E_NUMA=full has two of 64 besides. CRI-O is skipped by name as in e2e-crio.
e2e-systemd: $(STAMP)
	$(BIN)/python scripts/e2e_guest_systemd.py
	MOORING_E2E_NUMA=$${MOORING_E2E_NUMA:-1} $(BIN)/python -m pytest -q -p no:xdist -rA tests/e2e/guest/test_e2e_guest_systemd.py

# Beside real kubelets: PODS (40) of each, on TOPOLOGIES (no-smt no-smt-older): all, or names of
# tests/e2e/kubelet/shadow/topologies.py, which end in -older for the older release; KUBELETS (2) at a time.
# All with 1,000 pods: make e2e-shadow PODS=1000 TOPOLOGIES=all
e2e-shadow: export MOORING_E2E_SHADOW_PODS = $(PODS)
e2e-shadow: export MOORING_E2E_SHADOW_TOPOLOGIES = $(TOPOLOGIES)
e2e-shadow: export MOORING_E2E_SHADOW_KUBELETS = $(KUBELETS)
e2e-shadow: export MOORING_E2E_SHADOW_SEED = $(SEED)
e2e-shadow: $(STAMP)
	$(BIN)/python scripts/e2e_parts.py $(or $(MOORING_E2E_CONTAINERD),debian)
	$(BIN)/python scripts/e2e_kube_parts.py etcd kube-apiserver kubelet kubelet@v1.34.4
	$(BIN)/python -m pytest -q -p no:xdist -rfEs --log-cli-level=INFO tests/e2e/kubelet/shadow

# Builds Kubernetes' parts once, and says before each how long it takes. MOORING_E2E_KUBELET=full takes more cases,
# MOORING_E2E_CONTAINERD=built the newest containerd.
e2e-kubelet: $(STAMP)
	$(BIN)/python scripts/e2e_parts.py $(or $(MOORING_E2E_CONTAINERD),debian)
	$(BIN)/python scripts/e2e_kube_parts.py etcd kube-apiserver kube-scheduler kubelet kubelet@v1.34.4
	$(BIN)/python -m pytest -q -p no:xdist -rfEs tests/e2e/kubelet --ignore tests/e2e/kubelet/shadow

# Builds API server and scheduler once. MOORING_E2E_KUBE=full takes 100 nodes and 2,000 pods in each run; the second
# file has a real kubelet and needs root on Debian.
e2e-kube: $(STAMP)
	$(BIN)/python scripts/e2e_kube_parts.py etcd kube-apiserver kube-scheduler
	$(BIN)/python -m pytest -q -p no:xdist -rA tests/e2e/kube tests/e2e/kubelet/test_e2e_kubelet_scheduled.py

# Without BASE the base is made of Debian's packages (of SUITE), without root; with it, any image that has Python 3.11.
image: $(STAMP)
	$(BIN)/python scripts/image/build.py $(if $(BASE),--base $(BASE)) $(if $(SUITE),--suite $(SUITE)) $(if $(ARCH),--arch $(ARCH)) $(if $(IMAGE),--image $(IMAGE))

# Skipped by name where promtool and Prometheus cannot be built; their first build takes five to fifteen minutes.
observability: $(STAMP)
	$(BIN)/python scripts/observability_parts.py || [ $$? = 2 ]
	$(BIN)/python -m pytest -q -p no:xdist -rfEs tests/e2e/observability

# Skipped by name where no image can be built.
e2e-image: $(STAMP)
	$(BIN)/python scripts/image/build.py || [ $$? = 2 ]
	$(BIN)/python scripts/e2e_parts.py
	$(BIN)/python -m pytest -q -p no:xdist -rfEs tests/e2e/image

# Builds Helm and Kubernetes' parts once, and says before each how long it takes; then the image.
e2e-chart: $(STAMP)
	$(BIN)/python scripts/e2e_parts.py
	$(BIN)/python scripts/e2e_kube_parts.py helm etcd kube-apiserver kube-scheduler kube-controller-manager kube-proxy kubelet
	$(BIN)/python scripts/image/build.py || [ $$? = 2 ]
	$(BIN)/python -m pytest -q -p no:xdist -rfEs --log-cli-level=INFO tests/e2e/chart

# The agent as a process of its own, through real frames of the wire.
soak: $(STAMP)
	MOORING_SOAK_FOLDER=/dev/shm MOORING_SOAK=100000 $(BIN)/python -m pytest -q -s -p no:xdist tests/agent/wire/test_wire_soak.py

test-pythons: $(STAMP)
	$(BIN)/python scripts/test_pythons.py

check: lint types walls docs-links specification releases-page budget

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

walls: $(STAMP)
	$(BIN)/lint-imports

docs-links: $(STAMP)
	$(BIN)/python scripts/check_links.py

# Every citation of the specification in the code resolves, and every section names its modules.
specification: $(STAMP)
	$(BIN)/python scripts/specification.py

# The page of the kubelet's releases has the tables of the data by which the engine decides.
releases-page: $(STAMP)
	$(BIN)/python scripts/releases_page.py --check

# Lines, files, imports, helpers and types of the house against [tool.mooring.budget].
budget: $(STAMP)
	$(BIN)/python scripts/budget.py

docs: $(STAMP)
	$(BIN)/python scripts/specification.py --write
	$(BIN)/python scripts/releases_page.py
	$(BIN)/python scripts/rights.py
	$(BIN)/python scripts/refresh_docs.py

# Skipped where Helm cannot be built.
deploy: $(STAMP)
	$(BIN)/python scripts/deploy_manifests.py

# The site needs an environment of its own: nothing else needs its packages.
SITE := .venvs/site
$(SITE)/.installed: requirements-site.lock
	$(PYTHON_FOUND) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-site.lock
	@touch $(SITE)/.installed

# The planner in the browser comes with it, skipped by name where there is no npm.
site: $(SITE)/.installed $(STAMP)
	$(BIN)/python scripts/build_playground.py
	$(BIN)/python scripts/build_notebook.py
	$(SITE)/bin/python scripts/build_site.py
	$(BIN)/python -m mooring.documents.schemas build/site/schemas

pictures: $(STAMP)
	$(BIN)/python scripts/draw_pictures.py

bench: $(STAMP)
	$(BIN)/python -m pytest benchmarks -q -p no:xdist --benchmark-columns=min,median,max,rounds --benchmark-sort=name

# What is released, in dist. Times in the archives are those of the commit, or of the files of a source distribution.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || stat -c %Y pyproject.toml)
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/mooring/__init__.py)
WHEEL = dist/kube_mooring-$(VERSION)-py3-none-any.whl
wheel: $(STAMP)
	$(BIN)/hatchling build -t wheel

# The commit's files by git, because hatchling follows links to folders, and the examples' sysfs consists of them.
sdist: wheel
	@mkdir -p build/sdist
	unzip -p $(WHEEL) '*.dist-info/METADATA' > build/sdist/PKG-INFO
	git -c tar.umask=0022 archive --prefix=kube_mooring-$(VERSION)/ --add-file=build/sdist/PKG-INFO HEAD \
	  | gzip -9n > dist/kube_mooring-$(VERSION).tar.gz

dist: wheel sdist

reproducible: $(STAMP)
	$(BIN)/python scripts/release/reproducible.py

# What is installed with Mooring, and the tools of a release beside it. pip of the first environment fills both.
.venvs/runtime/.installed: requirements-runtime.lock
	$(PYTHON_FOUND) -m venv --clear --without-pip .venvs/runtime
	$(BIN)/pip --python .venvs/runtime install --quiet --disable-pip-version-check --require-hashes -r requirements-runtime.lock
	@touch $@
.venvs/release/.installed: requirements-runtime.lock requirements-release.lock
	$(PYTHON_FOUND) -m venv --clear --without-pip .venvs/release
	$(BIN)/pip --python .venvs/release install --quiet --disable-pip-version-check --require-hashes -r requirements-runtime.lock
	$(BIN)/pip --python .venvs/release install --quiet --disable-pip-version-check --require-hashes -r requirements-release.lock
	@touch $@

# Dask and NumPy stay out; so fleet says that it needs its extra.
MACHINE := $(shell uname -m)
ONEFILE = dist/mooring-$(VERSION)-$(SYSTEM)-$(MACHINE)
build/onefile/mooring/mooring: .venvs/release/.installed wheel
	$(BIN)/pip --python .venvs/release install --quiet --disable-pip-version-check --no-deps --force-reinstall $(WHEEL)
	PYTHONHASHSEED=1 .venvs/release/bin/pyinstaller --noconfirm --log-level ERROR --workpath build/onefile/work \
	  --distpath build/onefile packaging/onefile/mooring.spec
	$(BIN)/python scripts/release/licences.py --texts > build/onefile/LICENCES.txt

onefile: build/onefile/mooring/mooring
	cp build/onefile/mooring-onefile $(ONEFILE)
	$(BIN)/python scripts/release/try_executable.py $(ONEFILE)

# krew unpacks folders and plain files, no links. Platforms have Go's names. DOWNLOADS: where the archives will be; those of other machines
# that are in dist are in the manifest too.
export DOWNLOADS ?= https://example.org/mooring/releases/download/v$(VERSION)
SYSTEM := $(shell uname -s | tr A-Z a-z)
PLUGIN = dist/kubectl-mooring-$(VERSION)-$(SYSTEM)-$(patsubst aarch64,arm64,$(patsubst x86_64,amd64,$(MACHINE))).tar.gz
TAR ?= $(if $(filter darwin,$(SYSTEM)),gtar,tar)
krew: build/onefile/mooring/mooring
	rm -rf build/krew && cp -RL build/onefile/mooring build/krew && cp LICENSE build/onefile/LICENCES.txt build/krew
	$(TAR) --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime=@$(SOURCE_DATE_EPOCH) -C build/krew -c . \
	  | gzip -9n > $(PLUGIN)
	$(BIN)/python scripts/release/try_executable.py build/krew/mooring
	$(BIN)/python scripts/release/krew.py "$$DOWNLOADS" dist/kubectl-mooring-$(VERSION)-*.tar.gz

sbom: .venvs/runtime/.installed .venvs/release/.installed
	@mkdir -p dist
	.venvs/release/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --spec-version 1.6 \
	  --output-file dist/kube-mooring-$(VERSION).cdx.json .venvs/runtime

# Workflows by their own rules, then every lock against the known vulnerabilities, which needs the package index's data.
.venvs/audit/.installed: requirements-audit.lock
	$(PYTHON_FOUND) -m venv --clear --without-pip .venvs/audit
	$(BIN)/pip --python .venvs/audit install --quiet --disable-pip-version-check --require-hashes -r requirements-audit.lock
	@touch $@
audit: $(STAMP) .venvs/audit/.installed
	.venvs/audit/bin/zizmor --offline --no-progress --quiet .github action.yml
	for lock in requirements*.lock packaging/image/requirements.txt; do \
	  .venvs/audit/bin/pip-audit --strict --require-hashes --disable-pip -r "$$lock" || exit 1; done

# What the newest release promised, and what this version has. freeze writes down this version's, before a release.
compatibility: $(STAMP)
	$(BIN)/python scripts/release/compatibility.py

freeze: $(STAMP)
	$(BIN)/python scripts/release/compatibility.py --write

# NOTES: a version, or Unreleased.
export NOTES ?= Unreleased
notes: $(STAMP)
	@$(BIN)/python scripts/release/notes.py "$$NOTES"

# helm of the path, or the one that the tests of the chart build.
chart: $(STAMP)
	@mkdir -p dist
	helm=$$(command -v helm || $(BIN)/python scripts/e2e_kube_parts.py helm | sed -n 's/^helm: //p'); \
	  test -n "$$helm" || { echo "make chart: helm is missing, and could not be built"; exit 1; }; \
	  rm -rf build/chart && mkdir -p build && cp -r charts/mooring build/chart && \
	  sed -i "s#OWNER/mooring#$${REPOSITORY:-OWNER/mooring}#" build/chart/Chart.yaml && \
	  $$helm package build/chart --version $(VERSION) --app-version $(VERSION) --destination dist

checksums:
	cd dist && rm -f SHA256SUMS* && sha256sum * > ../build/SHA256SUMS && mv ../build/SHA256SUMS .

# Without a key in the release workflow; elsewhere COSIGN_FLAGS="--key cosign.key --tlog-upload=false".
COSIGN ?= cosign
sign:
	$(COSIGN) sign-blob --yes $(COSIGN_FLAGS) --bundle dist/SHA256SUMS.sigstore.json dist/SHA256SUMS

# The image of each architecture that was built keeps its digest, which is what is signed; the tag names all of them.
push:
	-buildah rmi --force mooring:$(VERSION) 2>/dev/null
	buildah manifest create mooring:$(VERSION)
	for built in build/image build/image-*; do test -f $$built/digest || continue; image=$(IMAGE)@$$(cat $$built/digest); \
	  skopeo copy --preserve-digests $(SKOPEO_FLAGS) oci-archive:$$built/mooring.tar docker://$$image && \
	  buildah manifest add $(BUILDAH_FLAGS) mooring:$(VERSION) docker://$$image && \
	  $(COSIGN) sign --yes $(COSIGN_FLAGS) $$image && \
	  $(COSIGN) attest --yes $(COSIGN_FLAGS) --type cyclonedx --predicate $$built/mooring.cdx.json $$image || exit 1; done
	buildah manifest push $(BUILDAH_FLAGS) --digestfile build/digest mooring:$(VERSION) docker://$(IMAGE):$(VERSION)
	$(COSIGN) sign --yes $(COSIGN_FLAGS) $(IMAGE)@$$(cat build/digest)
	buildah rmi mooring:$(VERSION)

# Everything that a release publishes, without tests, signatures and publishing.
release: notes compatibility reproducible dist onefile krew sbom licences image chart
	$(MAKE) checksums

licences: $(STAMP)
	$(BIN)/python scripts/release/licences.py

# Mutation testing takes its time and is no part of the continuous integration. ONLY takes patterns of mutant names.
ONLY ?= mooring.engine.cpumanager.packed* mooring.engine.cpumanager.static* mooring.engine.memorymanager.static* mooring.engine.topologymanager.merge*
mutants: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "mutmut==3.8.1"
	-$(BIN)/mutmut run --max-children $(WORKERS) $(foreach name,$(ONLY),"$(name)")
	$(BIN)/mutmut results

# Which recordings notice each rule of an older kubelet (about 10 minutes).
mutants-releases: $(STAMP)
	$(BIN)/python -m mutation.release_rules

# Needs uv; the file names no index, so that it works with any.
lock:
	uv pip compile --universal --python-version 3.11 --upgrade --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --group dev pyproject.toml -o requirements.lock
	uv pip compile --universal --python-version 3.11 --upgrade --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --group browser --constraint requirements.lock -o requirements-browser.lock
	uv pip compile --universal --python-version 3.11 --upgrade --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --group site -o requirements-site.lock
	uv pip compile --universal --python-version 3.11 --upgrade --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --extra agent --extra kube --extra dra --constraint requirements.lock pyproject.toml -o packaging/image/requirements.txt
	uv pip compile --universal --python-version 3.11 --upgrade --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --all-extras --constraint requirements.lock pyproject.toml -o requirements-runtime.lock
	uv pip compile --universal --python-version 3.11 --upgrade --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --group release --constraint requirements.lock -o requirements-release.lock
	uv pip compile --universal --python-version 3.11 --upgrade --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --group audit -o requirements-audit.lock

clean:
	rm -rf $(VENV) demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
