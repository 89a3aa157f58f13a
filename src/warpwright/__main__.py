from warpwright.cli import main

main()
